"""Calls a host with the Python MCP SDK, and prints what it got as one JSON object.

    fleet.py auto|legacy URL
    fleet.py auto|legacy COMMAND ARGUMENT...

The host serves the plugins fleet, conformance and hostile. What is found is judged by tests/it/clients.rs.
"""

import json
import sys
import time

import anyio
from mcp import Client, MCPError, StdioServerParameters


async def list_tools(client):
    """The names of all tools. The SDK gets one page at a time."""
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def page_through(client):
    """Every page of the fleet, each gotten with the arguments in the facts of the one before, as they stand."""
    pages, arguments = [], {"horizon": "all"}
    while arguments is not None:
        result = await client.call_tool("fleet_show", arguments)
        facts, body = (json.loads(block.text) for block in result.content[:2])
        pages.append(
            {
                "ids": [stream["id"] for stream in body["streams"]],
                "total_count": facts["total_count"],
                "is_error": result.is_error,
                "is_structured": result.structured_content is not None,
                "links": [[block.type, str(block.uri)] for block in result.content[2:]],
            }
        )
        arguments = facts.get("next")
    return pages


async def error_of(client, tool, arguments):
    """The protocol error of a call."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        return {"code": error.error.code, "message": error.error.message}
    return {"result": result.model_dump(mode="json")}


async def progress_of(client, tool):
    """The progress that a call reported."""
    told = []

    async def tell(progress, total, message):
        told.append([progress, total])

    await client.call_tool(tool, {}, progress_callback=tell)
    return told


async def cancel(client):
    """Cancels a call that never ends, after another was answered beside it; then its plugin answers one more."""
    found = {"ended": None}

    async def never_ends():
        result = await client.call_tool("loop", {})
        found["ended"] = result.content[0].text

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(never_ends)
        beside = await client.call_tool("fleet_show", {"limit": 1})
        tasks.cancel_scope.cancel()
    cancelled = time.monotonic()
    after = await client.call_tool("fine", {})
    waited = time.monotonic() - cancelled
    return found | {"beside": beside.content[1].text, "after": after.content[1].text, "waited_s": waited}


async def main():
    mode, target, *arguments = sys.argv[1:]
    is_url = target.startswith("http")
    server = target if is_url else StdioServerParameters(command=target, args=arguments)
    async with Client(server, mode=mode) as client:
        refused = await client.call_tool("fleet_show", {"limit": 101})
        found = {
            "protocol_version": client.protocol_version,
            "server": client.server_info.name,
            "tools": await list_tools(client),
            "pages": await page_through(client),
            "refused": {"is_error": refused.is_error, "texts": [block.text for block in refused.content]},
            "unknown_tool": await error_of(client, "no_such_tool", {}),
            "progress": await progress_of(client, "test_tool_with_progress"),
            "cancel": await cancel(client),
        }
    print(json.dumps(found))


anyio.run(main)
