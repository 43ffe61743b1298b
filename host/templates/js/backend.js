// The plugin `{{name}}`: one collection, from which the host makes `list_{{snake}}` and `get_{{snake}}`.
//
// It hands rows over. Pages, views, filters and tables are declared in `listCollections`, and the host carries them out.

import { document, rows } from 'plimsoll:plugin/reply@0.1.0';

const SUMMARY = ['id', 'title', 'state'];

// Made-up rows. Put what you fetch in their place.
const ROWS = Array.from({ length: 60 }, (_, index) => index + 1).map((id) => ({
  id,
  title: `Note ${id}`,
  state: ['open', 'waiting', 'done'][id % 3],
  text: `Everything that there is to say about note ${id}.`,
}));

const encoder = new TextEncoder();

export const backend = {
  listCollections: () => [
    {
      name: '{{snake}}',
      description: 'Notes, oldest first. Notes that are done are hidden unless asked for.',
      filters: [{ name: 'state', description: 'open, waiting or done.', valueType: 'text' }],
      shape: {
        rows: { tag: 'automatic' },
        key: 'id',
        horizon: { field: 'state', live: { tag: 'none-of', val: ['done'] }, excluded: 'notes that are done' },
        views: [{ name: 'summary', fields: SUMMARY }],
        defaultView: 'summary',
        columns: SUMMARY.map((field) => ({ name: field, field })),
        filters: [],
        applies: {},
      },
      tags: [],
    },
  ],

  query(collection, selection) {
    // Rows go out as bytes, one JSON value a line, in as many pushes as you like. What of the selection is easy for you,
    // apply yourself and say so with `applied`; the host does the rest.
    for (const row of ROWS) {
      if (rows(encoder.encode(`${JSON.stringify(row)}\n`)) === 'enough') return;
    }
  },

  get(collection, key) {
    const row = ROWS.find(({ id }) => String(id) === String(JSON.parse(key)));
    // What a caller is to hear is thrown as a value. An Error would be reported as a broken plugin.
    if (!row) throw { tag: 'not-found', val: `there is no row ${key} in ${collection}` };
    document(encoder.encode(JSON.stringify(row)));
  },
};
