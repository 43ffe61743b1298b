// A guest of the benches: a small answer, 1 MiB that it holds as bytes, and 5,000 rows that it builds as JSON.

import { document } from 'plimsoll:plugin/reply@0.1.0';

const encoder = new TextEncoder();
const SMALL = encoder.encode(`{"id":7,"state":"open","note":"${'keel '.repeat(33)}"}`);
const NOTE = 'mooring hull stern ballast hatch freight';

const row = (id) => ({
  id,
  name: 'keel berth',
  state: 'open',
  amount: id / 100,
  owner: { name: 'quay', team: id % 40 },
  created: '2026-11-30',
  note: NOTE,
  tags: ['bow'],
  active: true,
  parent: null,
});
const build = () => encoder.encode(JSON.stringify({ rows: Array.from({ length: 5000 }, (_, id) => row(id)) }));
// Made while the component is built, and so in its memory from the beginning.
const HELD = build();

const tool = (name, rows) => ({
  name,
  description: 'Answers a bench.',
  inputSchema: '{"type":"object","properties":{}}',
  shape: { rows, views: [], columns: [], filters: [], applies: {} },
  annotations: { readOnly: true },
  tags: [],
  examples: [],
});

export const tools = {
  listTools: () => [
    tool('small', { tag: 'whole' }),
    tool('held', { tag: 'pointer', val: '/rows' }),
    tool('built', { tag: 'pointer', val: '/rows' }),
  ],

  callTool(name) {
    if (name === 'small') document(SMALL);
    else if (name === 'held') document(HELD);
    else document(build());
  },
};
