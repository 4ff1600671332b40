// Drawing of cells.

// draw returns the element of a cell.
export function draw(cell) {
  const element = make("div", `cell ${cell.cell_type}`);
  element.id = `cell-${cell.id}`;
  if (cell.cell_type !== "code") {
    element.append(...cell.source.join("").split(/\n{2,}/).map(paragraph));
    return element;
  }
  element.classList.toggle("running", Boolean(cell.running));
  const source = make("div", "source");
  source.append(make("div", "count", `[${cell.running ? "*" : (cell.execution_count ?? " ")}]`), coloured(cell.source.join("")));
  const outputs = make("div", "outputs");
  outputs.append(...(cell.outputs ?? []).map(output));
  element.append(source, outputs);
  return element;
}

function make(name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

// paragraph draws one paragraph of a text cell: headings, bold text and code.
function paragraph(text) {
  const heading = /^(#{1,4}) +(.*)/.exec(text);
  const element = document.createElement(heading ? `h${heading[1].length}` : "p");
  for (const part of (heading?.[2] ?? text).split(/(\*\*[^*]+\*\*|`[^`]+`)/)) {
    const name = part.startsWith("**") ? "b" : part.startsWith("`") ? "code" : "";
    element.append(name ? make(name, "", part.replaceAll(/^(\*\*|`)|(\*\*|`)$/g, "")) : part);
  }
  return element;
}

const words = /(#.*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|not|or|pass|raise|return|try|while|with|yield)\b|\b(\d[\d_.e]*)\b/g;

// coloured draws Python.
function coloured(code) {
  const element = make("pre", "");
  let at = 0;
  for (const match of code.matchAll(words)) {
    const kind = ["c", "s", "k", "n"][match.slice(1).findIndex((m) => m !== undefined)];
    element.append(code.slice(at, match.index), make("span", kind, match[0]));
    at = match.index + match[0].length;
  }
  element.append(code.slice(at));
  return element;
}

// output draws one output in nbformat's form.
function output(o) {
  switch (o.output_type) {
    case "stream":
      return make("pre", o.name, plain(joined(o.text)));
    case "error":
      return make("pre", "error", plain(o.traceback.length ? o.traceback.join("\n") : `${o.ename}: ${o.evalue}`));
  }
  if (o.data["image/png"]) {
    const picture = make("img", "");
    picture.src = `data:image/png;base64,${joined(o.data["image/png"]).trim()}`;
    return picture;
  }
  if (o.data["text/html"]) {
    const html = make("div", "html");
    html.innerHTML = joined(o.data["text/html"]);
    return html;
  }
  return make("pre", "result", joined(o.data["text/plain"] ?? ""));
}

function joined(text) {
  return Array.isArray(text) ? text.join("") : text;
}

// plain removes the colours of a terminal.
function plain(text) {
  return text.replaceAll(/\u001b\[[0-9;]*m/g, "");
}
