// What the tools are called, what they take, and how the host is to shape what they hand over.

export const LIST_ORDERS = 'list_orders';
export const GET_ORDER = 'get_order';

const STATUSES = ['open', 'packed', 'shipped', 'delivered', 'cancelled'];

/** What all tools share. Every member of a record has to be there, also the empty ones. */
const SHAPE = { rows: { tag: 'automatic' }, views: [], columns: [], filters: [], applies: {} };

const LIST_SCHEMA = {
  type: 'object',
  properties: {
    status: {
      type: ['string', 'array'],
      items: { type: 'string', enum: STATUSES },
      description: `Only orders in this state, or in one of these: ${STATUSES.join(', ')}.`,
    },
    customer: { type: 'string', description: 'Only orders of this customer, such as C-0042.' },
  },
};

const GET_SCHEMA = {
  type: 'object',
  properties: { id: { type: 'string', description: 'The order, such as O-00017.' } },
  required: ['id'],
};

/** The tools, as `list-tools` returns them. */
export const TOOLS = [
  {
    name: LIST_ORDERS,
    title: 'Orders',
    description:
      'Lists the orders of a ship chandler, oldest first: who ordered, when, in which state the order is and what it ' +
      'comes to. Call it to find orders by state or customer. Cancelled orders are hidden unless asked for. For the ' +
      'lines and the address of one order call get_order.',
    inputSchema: JSON.stringify(LIST_SCHEMA),
    shape: {
      ...SHAPE,
      key: 'id',
      horizon: { field: 'status', live: { tag: 'none-of', val: ['cancelled'] }, excluded: 'cancelled orders' },
      views: [{ name: 'summary', fields: ['id', 'customer', 'status', 'placed', 'items', 'total'] }],
      defaultView: 'summary',
      columns: [
        { name: 'id', field: 'id' },
        { name: 'customer', field: 'customer' },
        { name: 'status', field: 'status' },
        { name: 'placed', field: 'placed' },
        { name: 'items', field: 'items' },
        { name: 'cents', field: 'total.cents' },
        { name: 'town', field: 'ship_to.town' },
      ],
      filters: [
        { argument: 'status', field: 'status' },
        { argument: 'customer', field: 'customer' },
      ],
    },
    annotations: { readOnly: true, idempotent: true },
    tags: [],
    examples: [
      { title: 'What is open', arguments: '{"status":"open"}' },
      { title: 'All orders of one customer, as a table', arguments: '{"customer":"C-0042","horizon":"all","format":"csv"}' },
    ],
  },
  {
    name: GET_ORDER,
    title: 'One order',
    description: 'Shows everything about one order: its lines with prices in cents, the address and the remark.',
    inputSchema: JSON.stringify(GET_SCHEMA),
    shape: { ...SHAPE, rows: { tag: 'whole' } },
    annotations: { readOnly: true, idempotent: true },
    tags: [],
    examples: [{ title: 'The first order', arguments: '{"id":"O-00001"}' }],
  },
];
