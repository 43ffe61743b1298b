// Calls a host with the TypeScript MCP SDK, and prints what it got as one JSON object.
//
//     fleet.mjs auto|legacy URL
//     fleet.mjs auto|legacy COMMAND ARGUMENT...
//
// The host serves the plugins fleet, conformance and hostile. What is found is judged by tests/it/clients.rs.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../target/clients/package.json", import.meta.url));
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const [mode, target, ...args] = process.argv.slice(2);
// Without negotiation the SDK speaks 2025-11-25, which is what most clients of today do.
const options = mode === "auto" ? { versionNegotiation: { mode } } : {};
const client = new Client({ name: "plimsoll-tests", version: "1" }, options);
await client.connect(
  target.startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args }),
);

/** Every page of the fleet, each gotten with the arguments in the facts of the one before, as they stand. */
async function pageThrough() {
  const pages = [];
  for (let next = { horizon: "all" }; next !== undefined; ) {
    const result = await client.callTool({ name: "fleet_show", arguments: next });
    const [facts, body] = result.content.slice(0, 2).map((block) => JSON.parse(block.text));
    pages.push({
      ids: body.streams.map((stream) => stream.id),
      total_count: facts.total_count,
      is_error: result.isError ?? false,
      is_structured: result.structuredContent !== undefined,
      links: result.content.slice(2).map((block) => [block.type, block.uri]),
    });
    next = facts.next;
  }
  return pages;
}

/** The protocol error of a call. */
async function errorOf(name, args) {
  try {
    return { result: await client.callTool({ name, arguments: args }) };
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

/** The progress that a call reported. */
async function progressOf(name) {
  const told = [];
  await client.callTool({ name }, { onprogress: ({ progress, total }) => told.push([progress, total]) });
  return told;
}

/** Cancels a call that never ends, after another was answered beside it; then its plugin answers one more. */
async function cancel() {
  const abort = new AbortController();
  const neverEnds = client.callTool({ name: "loop", arguments: {} }, { signal: abort.signal }).then(
    (result) => result.content[0].text,
    () => null,
  );
  const beside = await client.callTool({ name: "fleet_show", arguments: { limit: 1 } });
  abort.abort();
  const ended = await neverEnds;
  const cancelled = performance.now();
  const after = await client.callTool({ name: "fine", arguments: {} });
  const waited_s = (performance.now() - cancelled) / 1000;
  return { ended, beside: beside.content[1].text, after: after.content[1].text, waited_s };
}

const refused = await client.callTool({ name: "fleet_show", arguments: { limit: 101 } });
const found = {
  protocol_version: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion().name,
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  pages: await pageThrough(),
  refused: { is_error: refused.isError, texts: refused.content.map((block) => block.text) },
  unknown_tool: await errorOf("no_such_tool", {}),
  progress: await progressOf("test_tool_with_progress"),
  cancel: await cancel(),
};
await client.close();
console.log(JSON.stringify(found));
