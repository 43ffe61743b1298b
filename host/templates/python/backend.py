"""The plugin `{{name}}`: one collection, from which the host makes `list_{{snake}}` and `get_{{snake}}`.

It hands rows over. Pages, views, filters and tables are declared in `list_collections`, and the host carries them out.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import backend
from wit_world.imports import reply, shaping, types

SUMMARY = ["id", "title", "state"]

# Made-up rows. Put what you fetch in their place.
ROWS = [
    {
        "id": id,
        "title": f"Note {id}",
        "state": ("open", "waiting", "done")[id % 3],
        "text": f"Everything that there is to say about note {id}.",
    }
    for id in range(1, 61)
]


def line(row):
    return json.dumps(row, separators=(",", ":")).encode()


class Backend(exports.Backend):
    def list_collections(self):
        return [
            backend.Collection(
                name="{{snake}}",
                description="Notes, oldest first. Notes that are done are hidden unless asked for.",
                filters=[backend.FilterField("state", "open, waiting or done.", backend.ValueType.TEXT)],
                shape=shaping.Shape(
                    rows=shaping.RowSource_Automatic(),
                    key="id",
                    horizon=shaping.Horizon("state", shaping.Accepted_NoneOf(["done"]), "notes that are done"),
                    views=[shaping.View("summary", SUMMARY)],
                    default_view="summary",
                    columns=[shaping.Column(field, field) for field in SUMMARY],
                    filters=[],
                    page=None,
                    cap_bytes=None,
                    applies=shaping.PushDown(0),
                ),
                count=None,
                tags=[],
            )
        ]

    def query(self, collection, selection):
        # Rows go out as bytes, one JSON value a line, in as many pushes as you like. What of the selection is easy for
        # you, apply yourself and say so with reply.applied; the host does the rest.
        for row in ROWS:
            if reply.rows(line(row) + b"\n") == reply.Demand.ENOUGH:
                return

    def get(self, collection, key):
        row = next((row for row in ROWS if str(row["id"]) == str(json.loads(key))), None)
        # What a caller is to hear is raised as an Err. Every other exception is reported as a broken plugin.
        if row is None:
            raise Err(types.Fault_NotFound(f"there is no row {key} in {collection}"))
        reply.document(line(row))
