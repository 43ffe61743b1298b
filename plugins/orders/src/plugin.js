// The order book of a ship chandler, as two tools.
//
// The plugin finds and hands over. It has no pages, filters or views of its own: what it declares (see declaration.js)
// the host carries out, and the host says when it has heard enough.

import { document, rows, total } from 'plimsoll:plugin/reply@0.1.0';

import { GET_ORDER, LIST_ORDERS, TOOLS } from './declaration.js';
import { COUNT, numberOf, order } from './orders.js';

/** Rows of one push: some 30 KB, so that little is made in vain when the host has heard enough. */
const ROWS_A_PUSH = 64;

// Pushes are bytes: handing over a string would cost far more than making the row.
const encoder = new TextEncoder();

function listOrders() {
  total(BigInt(COUNT));
  for (let first = 1; first <= COUNT; first += ROWS_A_PUSH) {
    let lines = '';
    for (let number = first; number < first + ROWS_A_PUSH && number <= COUNT; number += 1) {
      lines += `${order(number)}\n`;
    }
    if (rows(encoder.encode(lines)) === 'enough') return;
  }
}

function getOrder({ id }) {
  const number = numberOf(id);
  if (number === undefined) {
    // A value, not an Error: this is an answer. An Error would be reported as a broken plugin.
    throw { tag: 'not-found', val: `there is no order ${id}; list_orders has the ids` };
  }
  document(encoder.encode(order(number)));
}

export const tools = {
  listTools: () => TOOLS,

  callTool(name, text) {
    const given = JSON.parse(text);
    if (name === LIST_ORDERS) listOrders();
    else if (name === GET_ORDER) getOrder(given);
    else throw { tag: 'not-found', val: `there is no tool ${name} here` };
  },
};
