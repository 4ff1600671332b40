// The page of the stand-in: a notebook whose tab connects with a relay as Colab's does. What
// crosses the WebSocket follows the design note colab-page-and-vm.md.
import { Notebook } from "/page/notebook.js";
import { serve } from "/page/mcp.js";

const address = new URLSearchParams(location.hash.slice(1));
const status = document.getElementById("status");
const dialog = document.getElementById("dialog");

function show(state, text) {
  status.dataset.state = state;
  status.textContent = text;
}

function connect(notebook) {
  const token = encodeURIComponent(address.get("mcpProxyToken"));
  const socket = new WebSocket(`ws://localhost:${address.get("mcpProxyPort")}/?access_token=${token}`, ["mcp"]);
  socket.onopen = () => {
    show("on", "connected to a relay on this computer");
    serve(socket, notebook);
  };
  socket.onclose = (event) => show("lost", `no connection to a relay: ${event.code}`);
}

const notebook = new Notebook(document.getElementById("cells"), location.pathname);
document.title = document.getElementById("title").textContent = decodeURIComponent(location.pathname.split("/").pop());
await notebook.load();
if (address.get("mcpProxyToken")) {
  document.getElementById("connect").onclick = () => { dialog.close(); connect(notebook); };
  document.getElementById("decline").onclick = () => { dialog.close(); show("lost", "declined"); };
  dialog.showModal();
}
document.body.dataset.ready = "yes";
