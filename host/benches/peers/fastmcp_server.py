"""FastMCP with the two tools of the benches. Arguments: the port, and the folder of the answers."""

import sys
from pathlib import Path

from fastmcp import FastMCP

port, folder = int(sys.argv[1]), Path(sys.argv[2])
SMALL = (folder / "small.json").read_text()
ROWS = (folder / "rows.json").read_text()

server = FastMCP("bench")


# Without a schema each answer goes out once; with the one that is made from the annotation it would go out twice.
@server.tool(output_schema=None)
def small() -> str:
    return SMALL


@server.tool(output_schema=None)
def rows() -> str:
    return ROWS


server.run(
    transport="http",
    host="127.0.0.1",
    port=port,
    show_banner=False,
    log_level="error",
    stateless_http=True,
    json_response=True,
)
