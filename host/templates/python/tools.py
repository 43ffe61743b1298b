"""The plugin `{{name}}`: one tool.

It hands rows over. Pages, views, filters and tables are declared in `list_tools`, and the host carries them out.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import tools
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

SCHEMA = {
    "type": "object",
    "properties": {"state": {"type": "string", "description": "Only notes in this state: open, waiting or done."}},
}


class Tools(exports.Tools):
    def list_tools(self):
        return [
            tools.Tool(
                name="list_{{snake}}",
                title=None,
                description="Lists the notes, oldest first. Notes that are done are hidden unless asked for.",
                input_schema=json.dumps(SCHEMA),
                output_schema=None,
                shape=shaping.Shape(
                    rows=shaping.RowSource_Automatic(),
                    key="id",
                    horizon=shaping.Horizon("state", shaping.Accepted_NoneOf(["done"]), "notes that are done"),
                    views=[shaping.View("summary", SUMMARY)],
                    default_view="summary",
                    columns=[shaping.Column(field, field) for field in SUMMARY],
                    filters=[shaping.Filter("state", "state")],
                    page=None,
                    cap_bytes=None,
                    applies=shaping.PushDown(0),
                ),
                annotations=tools.Annotations.READ_ONLY | tools.Annotations.IDEMPOTENT,
                tags=[],
                examples=[tools.Example("All notes, as a table", '{"horizon":"all","format":"csv"}')],
            )
        ]

    def call_tool(self, name, arguments):
        # What a caller is to hear is raised as an Err. Every other exception is reported as a broken plugin.
        if name != "list_{{snake}}":
            raise Err(types.Fault_NotFound(f"there is no tool {name} here"))
        # json.loads(arguments) has the arguments of your own. Rows go out as bytes, one JSON value a line, in as many
        # pushes as you like.
        for row in ROWS:
            line = json.dumps(row, separators=(",", ":")) + "\n"
            if reply.rows(line.encode()) == reply.Demand.ENOUGH:
                return
