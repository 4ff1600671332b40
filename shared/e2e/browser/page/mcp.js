// The MCP server in the tab: seven tools over one WebSocket, one JSON-RPC message a frame.
const languages = ["python", "r", "julia"];

// toolsOf returns the tools by name, each with the arguments that it needs.
function toolsOf(notebook) {
  return {
    add_code_cell: [["cellIndex", "language", "code"], (a) => {
      if (!languages.includes(a.language)) throw new Error(`no language ${a.language}`);
      return { newCellId: notebook.add(a.cellIndex, "code", a.code) };
    }],
    add_text_cell: [["cellIndex", "content"], (a) => ({ newCellId: notebook.add(a.cellIndex, "markdown", a.content) })],
    update_cell: [["cellId", "content"], (a) => notebook.update(a.cellId, a.content)],
    delete_cell: [["cellId"], (a) => notebook.remove(a.cellId)],
    move_cell: [["cellId", "cellIndex"], (a) => notebook.move(a.cellId, a.cellIndex)],
    get_cells: [[], (a) => ({ cells: notebook.list(a.cellIndexStart ?? 0, a.cellIndexEnd, a.includeOutputs ?? false) })],
    run_code_cell: [["cellId"], async (a) => ({ outputs: await notebook.run(a.cellId) })],
  };
}

// answer returns the result of a tool: JSON inside a text, no structuredContent.
async function answer(tools, { name, arguments: args = {} }) {
  try {
    if (!tools[name]) throw new Error(`unknown tool ${name}`);
    const [required, call] = tools[name];
    for (const needed of required) {
      if (args[needed] === undefined) throw new Error(`${needed} is missing`);
    }
    return { content: [{ type: "text", text: JSON.stringify((await call(args)) ?? {}) }] };
  } catch (failed) {
    return { content: [{ type: "text", text: `Error: ${failed.message}` }], isError: true };
  }
}

// serve answers the relay until the socket closes.
export function serve(socket, notebook) {
  const tools = toolsOf(notebook);
  const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  socket.onmessage = async (event) => {
    const { id, method, params } = JSON.parse(event.data);
    if (id === undefined || method === undefined) return; // a notification
    switch (method) {
      case "initialize":
        send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: "ColabMCP", version: "1.0.0" } } });
        break;
      case "ping":
        send({ id, result: {} });
        break;
      case "tools/call":
        send({ id, result: await answer(tools, params) });
        break;
      default:
        send({ id, error: { code: -32601, message: "Method not found" } });
    }
  };
  send({ method: "notifications/tools/list_changed" });
}
