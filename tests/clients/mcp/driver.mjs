// The TypeScript SDK's client, which most hosts are built on: starts `holdfast mcp`, and does a host's work.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "host", version: "1" }, { capabilities: { elicitation: {} } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: {} };
});
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
const saw = { tools: (await client.listTools()).tools.map((each) => each.name) };
const steps = [];
const call = (message, conversation) =>
  client.callTool({ name: "root", arguments: { message, conversation } }, undefined, {
    onprogress: (told) => steps.push(told.message),
  });
const first = await call("first", "trip");
saw.first = first.structuredContent;
saw.second = (await call("second", "trip")).structuredContent;
saw.failed = (await call("fail", "trip")).isError;
saw.ordered = (await call("order", "trip")).structuredContent;
saw.asked = asked;
saw.steps = steps;
const stop = new AbortController();
const held = client.callTool({ name: "root", arguments: { message: "long", conversation: "trip" } }, undefined, {
  signal: stop.signal,
});
setTimeout(() => stop.abort("enough"), 500);
saw.stopped = await held.then(
  () => "answered",
  (error) => String(error.message ?? error),
);
saw.resources = (await client.listResources()).resources.map((each) => each.title);
await client.close();
console.log(JSON.stringify(saw));
