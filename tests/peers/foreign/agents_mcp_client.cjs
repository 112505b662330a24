/*
 * A typed conversation of OpenAI's agents SDK for JavaScript with a hosted MCP tool, whose calls it approves.
 *
 * `node agents_mcp_client.cjs URL MCP_URL WORDS` takes the addresses of the server and of the MCP server, with NODE_PATH at the packages, and
 * types WORDS once the tools are listed. The program prints what it has seen as one line of JSON. The SDK for Python has no such tools.
 */

const { RealtimeAgent, RealtimeSession } = require("@openai/agents-realtime");
const { hostedMcpTool } = require("@openai/agents-core");

const LONGEST_MS = 60_000;

const seen = { errors: [], listed: [], approved: [], outputs: [] };

async function main(url, mcpUrl, words) {
  const shop = hostedMcpTool({ serverLabel: "shop", serverUrl: mcpUrl, requireApproval: "always", allowedTools: ["order"] });
  const agent = new RealtimeAgent({ name: "Ada", instructions: "Be kind.", tools: [shop] });
  const session = new RealtimeSession(agent, { transport: "websocket", model: "parley" });
  const over = {};
  over.promise = new Promise((resolve) => {
    over.resolve = resolve;
  });

  session.on("error", ({ error }) => seen.errors.push(String(error?.message ?? JSON.stringify(error))));
  session.on("mcp_tools_changed", (tools) => {
    seen.listed.push(tools.map(({ name }) => name));
    session.sendMessage(words);
  });
  session.on("tool_approval_requested", (_context, _agent, { approvalItem }) => {
    seen.approved.push(approvalItem.rawItem.name);
    session.approve(approvalItem).catch((error) => seen.errors.push(String(error)));
  });
  session.on("mcp_tool_call_completed", (_context, _agent, call) => seen.outputs.push(call.output));
  session.on("audio_stopped", () => over.resolve());
  const limit = setTimeout(() => {
    seen.errors.push("it took too long");
    over.resolve();
  }, LONGEST_MS);
  await session.connect({ apiKey: "x", url });
  await over.promise;
  clearTimeout(limit);
  seen.history = session.history.map((item) => item.type);
  session.close();
  return seen;
}

main(...process.argv.slice(2)).then(
  (found) => {
    console.log(JSON.stringify(found));
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
