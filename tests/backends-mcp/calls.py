"""Calls tools of a host with the Python MCP SDK and prints the blocks of every result as one JSON list.

    calls.py auto|legacy CALLS COMMAND ARGUMENT...

CALLS is a JSON list of pairs, a tool and its arguments. What is found is judged by tests/it/upstream.rs.
"""

import json
import sys

import anyio
from mcp import Client, StdioServerParameters


async def main():
    mode, calls, command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments)
    found = []
    async with Client(server, mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for tool, arguments in json.loads(calls):
            result = await client.call_tool(tool, arguments)
            blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
            found.append({"is_error": result.is_error, "blocks": blocks, "structured": result.structured_content})
    print(json.dumps({"tools": tools, "answers": found}))


anyio.run(main)
