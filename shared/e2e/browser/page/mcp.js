// The MCP server in the tab: seven tools over one WebSocket, one JSON-RPC message a frame.
const integer = { type: "integer" }, text = { type: "string" };
const languages = ["python", "r", "julia"];

function tool(name, properties, required, call) {
  return { call, shown: { name, description: name, inputSchema: { type: "object", properties, ...(required.length && { required }) } } };
}

export function toolsOf(notebook) {
  return [
    tool("add_code_cell", { cellIndex: integer, language: { type: "string", enum: languages }, code: text }, ["cellIndex", "language", "code"], (a) => {
      if (!languages.includes(a.language)) throw new Error(`no language ${a.language}`);
      return { newCellId: notebook.add(a.cellIndex, "code", a.code) };
    }),
    tool("add_text_cell", { cellIndex: integer, content: text }, ["cellIndex", "content"], (a) => ({ newCellId: notebook.add(a.cellIndex, "markdown", a.content) })),
    tool("update_cell", { cellId: text, content: text }, ["cellId", "content"], (a) => notebook.update(a.cellId, a.content)),
    tool("delete_cell", { cellId: text }, ["cellId"], (a) => notebook.remove(a.cellId)),
    tool("move_cell", { cellId: text, cellIndex: integer }, ["cellId", "cellIndex"], (a) => notebook.move(a.cellId, a.cellIndex)),
    tool("get_cells", { cellIndexStart: integer, cellIndexEnd: integer, includeOutputs: { type: "boolean" } }, [], (a) => ({
      cells: notebook.list(a.cellIndexStart ?? 0, a.cellIndexEnd, a.includeOutputs ?? false),
    })),
    tool("run_code_cell", { cellId: text }, ["cellId"], async (a) => ({ outputs: await notebook.run(a.cellId) })),
  ];
}

// answer returns the result of a tool: JSON inside a text, no structuredContent.
async function answer(tools, { name, arguments: args = {} }) {
  try {
    const found = tools.find((t) => t.shown.name === name);
    if (!found) throw new Error(`unknown tool ${name}`);
    for (const needed of found.shown.inputSchema.required ?? []) {
      if (args[needed] === undefined) throw new Error(`${needed} is missing`);
    }
    return { content: [{ type: "text", text: JSON.stringify((await found.call(args)) ?? {}) }] };
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
      case "tools/list":
        send({ id, result: { tools: tools.map((t) => t.shown) } });
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
