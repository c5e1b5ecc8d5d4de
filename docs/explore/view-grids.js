/** Part 3: who shares with whom, and how activating one input grid after another reaches every weight. */
import { Surface, ink } from "./drawing.js";
import { lateralGrids } from "./sharing.js";

const PIXELS_SHOWN = { rows: 12, columns: 18 };
const TURN_MS = 700; // for which an input grid stays lit

export class GridsView {
  constructor(settings, { find, changed }) {
    Object.assign(this, { settings, find, changed, playing: false, dirty: true, turned: 0 });
    settings.remember("grids.neuron", "0", (text) => /^\d{1,3}$/.test(text));
    settings.remember("grids.lit", "none", (text) => /^(none|\d{1,2})$/.test(text));
    const redraw = () => this.redraw();
    const height = (width) => (width * PIXELS_SHOWN.rows) / PIXELS_SHOWN.columns;
    this.input = new Surface(find("grids-input"), height, redraw);
    this.output = new Surface(find("grids-neurons"), height, redraw);
    const canvas = this.output.canvas;
    canvas.addEventListener("click", (event) => this.choose(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    find("grids-play").addEventListener("click", () => this.play(!this.playing));
    find("grids-next").addEventListener("click", () => this.next());
    find("grids-dark").addEventListener("click", () => {
      this.play(false);
      settings.set("grids.lit", "none");
    });
    settings.listen("grids", () => this.redraw());
  }

  /** The layer that the sliders describe. */
  get layer() {
    const [k, stride] = [this.settings.number("grids.k"), this.settings.number("grids.stride")];
    const [rows, columns] = [PIXELS_SHOWN.rows, PIXELS_SHOWN.columns].map((size) => Math.floor((size - k) / stride) + 1);
    const grids = lateralGrids([rows, columns], { kernelSize: k, stride });
    const neuron = Math.min(Number(this.settings.text("grids.neuron")), rows * columns - 1);
    const lit = this.settings.text("grids.lit");
    return { k, stride, rows, columns, grids, neuron, lit: lit === "none" ? null : Number(lit) % (k * k) };
  }

  /** Where neurons are drawn: as large as fits, in the middle. */
  place({ rows, columns }) {
    const cell = Math.min(this.output.width / columns, this.output.height / rows);
    return { cell, left: (this.output.width - cell * columns) / 2, top: (this.output.height - cell * rows) / 2 };
  }

  choose(event) {
    const { layer } = this;
    const { cell, left, top } = this.place(layer);
    const [x, y] = this.output.pointer(event);
    const [column, row] = [Math.floor((x - left) / cell), Math.floor((y - top) / cell)];
    if (column >= 0 && row >= 0 && column < layer.columns && row < layer.rows) {
      this.settings.set("grids.neuron", String(row * layer.columns + column));
    }
  }

  key(event) {
    const { rows, columns, neuron } = this.layer;
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const row = Math.min(Math.max(Math.floor(neuron / columns) + step[0], 0), rows - 1);
    const column = Math.min(Math.max((neuron % columns) + step[1], 0), columns - 1);
    this.settings.set("grids.neuron", String(row * columns + column));
  }

  next() {
    const { lit, k } = this.layer;
    this.settings.set("grids.lit", String(lit === null ? 0 : (lit + 1) % (k * k)));
  }

  play(on) {
    this.playing = on;
    this.turned = 0;
    this.find("grids-play").textContent = on ? "Pause" : "Activate in turn";
    this.redraw();
  }

  move(now) {
    if (now - this.turned < TURN_MS) return;
    this.turned = now;
    this.next();
  }

  redraw() {
    this.dirty = true;
    this.changed();
  }

  draw() {
    const { layer } = this;
    this.drawInput(layer);
    this.drawNeurons(layer);
    this.write(layer);
  }

  drawInput({ k, stride, columns, grids, neuron, lit }) {
    const context = this.input.clear();
    const cell = this.input.width / PIXELS_SHOWN.columns;
    for (let y = 0; y < PIXELS_SHOWN.rows; y++) {
      for (let x = 0; x < PIXELS_SHOWN.columns; x++) {
        const on = lit !== null && y % k === Math.floor(lit / k) && x % k === lit % k;
        context.fillStyle = ink(on ? "day" : "cell");
        context.fillRect(x * cell + 0.75, y * cell + 0.75, cell - 1.5, cell - 1.5);
      }
    }
    context.lineJoin = "round";
    grids.forEach((grid, n) => {
      if (grid !== grids[neuron]) return;
      const [y, x] = [Math.floor(n / columns) * stride, (n % columns) * stride];
      context.strokeStyle = n === neuron ? ink("ink") : gridColour(grid, grids, true);
      context.lineWidth = n === neuron ? 3 : 1.6;
      context.strokeRect(x * cell + 1.5, y * cell + 1.5, k * cell - 3, k * cell - 3);
    });
  }

  drawNeurons(layer) {
    const { columns, grids, neuron } = layer;
    const context = this.output.clear();
    const { cell, left, top } = this.place(layer);
    const gap = Math.max(cell * 0.05, 0.75);
    grids.forEach((grid, n) => {
      const [x, y] = [left + (n % columns) * cell, top + Math.floor(n / columns) * cell];
      const chosen = grid === grids[neuron];
      context.fillStyle = gridColour(grid, grids, chosen);
      context.beginPath();
      context.roundRect(x + gap, y + gap, cell - 2 * gap, cell - 2 * gap, cell * 0.18);
      context.fill();
      if (n === neuron) {
        context.strokeStyle = ink("ink");
        context.lineWidth = 2.5;
        context.stroke();
      }
      if (layer.lit === null) this.writeNumber(context, grid, x, y, cell, chosen);
      else this.drawTap(context, layer, n, x, y, cell, chosen);
    });
  }

  writeNumber(context, grid, x, y, cell, chosen) {
    if (cell < 14) return;
    context.fillStyle = chosen ? "#fff" : ink("soft");
    context.font = `${Math.min(cell * 0.42, 17)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.fillText(grid + 1, x + cell / 2, y + cell / 2 + 0.5);
  }

  /** The place of the filter through which this neuron sees the lit grid. */
  drawTap(context, layer, n, x, y, cell, chosen) {
    const [row, column] = litTap(layer, n);
    const tap = (cell * 0.76) / layer.k;
    context.fillStyle = chosen ? "#fff" : ink("faint");
    context.fillRect(x + cell * 0.12 + column * tap, y + cell * 0.12 + row * tap, Math.max(tap, 2), Math.max(tap, 2));
  }

  write(layer) {
    const { k, grids, neuron, lit } = layer;
    const members = grids.filter((grid) => grid === grids[neuron]).length;
    const count = 1 + Math.max(...grids);
    const others = `${members - 1} ${members === 2 ? "other" : "others"}`;
    let text = `${count} ${count === 1 ? "grid" : "grids"}. The chosen neuron belongs to grid ${grids[neuron] + 1} and shares with ${others}.`;
    if (lit !== null) {
      const [row, column] = litTap(layer, neuron);
      text += ` Input grid ${lit + 1} of ${k * k} is active: all ${members} see it at row ${row + 1}, column ${column + 1} of their filters.`;
    }
    this.find("grids-note").textContent = text;
  }
}

/** Row and column, within the window of neuron n, of the one pixel that is lit. */
export function litTap({ k, stride, columns, lit }, n) {
  const within = (phase, start) => (((phase - start) % k) + k) % k;
  return [within(Math.floor(lit / k), Math.floor(n / columns) * stride), within(lit % k, (n % columns) * stride)];
}

/** One hue for each grid, strong for the chosen one. */
function gridColour(grid, grids, strong) {
  const count = 1 + Math.max(...grids);
  const hue = (225 + (360 * grid) / count) % 360;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (strong) return `hsl(${hue} 62% ${dark ? 50 : 42}%)`;
  return dark ? `hsl(${hue} 32% 24%)` : `hsl(${hue} 62% 90%)`;
}
