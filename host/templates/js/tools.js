// The plugin `{{name}}`: one tool.
//
// It hands rows over. Pages, views, filters and tables are declared in `listTools`, and the host carries them out.

import { rows } from 'plimsoll:plugin/reply@0.1.0';

const SUMMARY = ['id', 'title', 'state'];

// Made-up rows. Put what you fetch in their place.
const ROWS = Array.from({ length: 60 }, (_, index) => index + 1).map((id) => ({
  id,
  title: `Note ${id}`,
  state: ['open', 'waiting', 'done'][id % 3],
  text: `Everything that there is to say about note ${id}.`,
}));

const SCHEMA = {
  type: 'object',
  properties: { state: { type: 'string', description: 'Only notes in this state: open, waiting or done.' } },
};

const encoder = new TextEncoder();

export const tools = {
  listTools: () => [
    {
      name: 'list_{{snake}}',
      description: 'Lists the notes, oldest first. Notes that are done are hidden unless asked for.',
      inputSchema: JSON.stringify(SCHEMA),
      shape: {
        rows: { tag: 'automatic' },
        key: 'id',
        horizon: { field: 'state', live: { tag: 'none-of', val: ['done'] }, excluded: 'notes that are done' },
        views: [{ name: 'summary', fields: SUMMARY }],
        defaultView: 'summary',
        columns: SUMMARY.map((field) => ({ name: field, field })),
        filters: [{ argument: 'state', field: 'state' }],
        applies: {},
      },
      annotations: { readOnly: true, idempotent: true },
      tags: [],
      examples: [{ title: 'All notes, as a table', arguments: '{"horizon":"all","format":"csv"}' }],
    },
  ],

  callTool(name, text) {
    // What a caller is to hear is thrown as a value. An Error would be reported as a broken plugin.
    if (name !== 'list_{{snake}}') throw { tag: 'not-found', val: `there is no tool ${name} here` };
    // JSON.parse(text) has the arguments of your own. Rows go out as bytes, one JSON value a line, in as many pushes as
    // you like.
    for (const row of ROWS) {
      if (rows(encoder.encode(`${JSON.stringify(row)}\n`)) === 'enough') return;
    }
  },
};
