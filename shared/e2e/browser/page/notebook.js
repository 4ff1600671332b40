// The notebook in the page: its cells, what they show, and the kernel that runs them. It is
// saved after each change, as Colab does.
import { draw } from "/page/draw.js";

export class Notebook {
  #cells = [];
  #running = Promise.resolve(); // the last cell that runs or waits

  constructor(element, path) {
    this.element = element;
    this.address = "/saved" + path;
  }

  // load shows the notebook as it was saved, or a new one with an empty cell.
  async load() {
    const saved = await fetch(this.address);
    this.#cells = saved.ok ? await saved.json() : [{ cell_type: "code", id: newID(), source: [], outputs: [], execution_count: null }];
    this.#redraw();
  }

  list(from, to, outputs) {
    const chosen = this.#cells.slice(Math.max(from, 0), to === undefined ? undefined : to + 1);
    return chosen.map(({ running, ...cell }) => {
      if (!outputs || cell.cell_type !== "code") delete cell.outputs;
      return cell;
    });
  }

  add(index, cell_type, text) {
    if (!(index >= 0 && index <= this.#cells.length)) throw new Error(`cellIndex ${index} is out of range`);
    const cell = { cell_type, id: newID(), source: lines(text), execution_count: null };
    if (cell_type === "code") cell.outputs = [];
    this.#cells.splice(index, 0, cell);
    this.#changed();
    return cell.id;
  }

  update(id, text) {
    this.#find(id).source = lines(text);
    this.#changed();
  }

  remove(id) {
    this.#cells.splice(this.#cells.indexOf(this.#find(id)), 1);
    this.#changed();
  }

  move(id, index) {
    if (!(index >= 0 && index < this.#cells.length)) throw new Error(`cellIndex ${index} is out of range`);
    const cell = this.#find(id);
    this.#cells.splice(this.#cells.indexOf(cell), 1);
    this.#cells.splice(index, 0, cell);
    this.#changed();
  }

  // run runs a cell after those that run already, and returns its outputs.
  run(id) {
    const cell = this.#find(id);
    const run = this.#running.then(() => this.#execute(cell));
    this.#running = run.catch(() => {});
    return run;
  }

  async #execute(cell) {
    Object.assign(cell, { outputs: [], execution_count: null, running: true });
    this.#changed();
    try {
      const answer = await fetch("/kernel", { method: "POST", body: cell.source.join("") });
      if (!answer.ok) throw new Error(await answer.text());
      const { outputs, count } = await answer.json();
      Object.assign(cell, { outputs, execution_count: count });
      return outputs;
    } finally {
      cell.running = false;
      this.#changed();
    }
  }

  #find(id) {
    const cell = this.#cells.find((c) => c.id === id);
    if (!cell) throw new Error(`cell ${id} not found`);
    return cell;
  }

  #changed() {
    this.#redraw();
    fetch(this.address, { method: "PUT", body: JSON.stringify(this.#cells), keepalive: true }).catch(() => {});
  }

  #redraw() {
    this.element.replaceChildren(...this.#cells.map(draw));
  }
}

function newID() {
  return crypto.randomUUID().slice(0, 8);
}

// lines splits a source as nbformat does.
function lines(text) {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}
