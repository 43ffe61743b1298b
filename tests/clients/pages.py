"""Calls tools of a host with the Python MCP SDK, page by page, and prints what it got as one JSON list.

    pages.py auto|legacy CALLS COMMAND ARGUMENT...

CALLS is a JSON list of pairs, a tool and its arguments. Each is followed for three pages at most, with the arguments in the
facts of the page before, as they stand. What is found is judged by tests/it/clients.rs.
"""

import json
import sys

import anyio
from mcp import Client, StdioServerParameters

MOST_PAGES = 3


async def pages(client, tool, arguments):
    """The facts and the body of each page."""
    found = []
    while arguments is not None and len(found) < MOST_PAGES:
        result = await client.call_tool(tool, arguments)
        facts, body = (json.loads(block.text) for block in result.content if block.type == "text")
        found.append({"facts": facts, "body": body, "is_error": result.is_error})
        arguments = facts.get("next")
    return found


async def main():
    mode, calls, command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments)
    async with Client(server, mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        answers = [await pages(client, tool, arguments) for tool, arguments in json.loads(calls)]
    print(json.dumps({"tools": tools, "answers": answers}))


anyio.run(main)
