/** Part 4: paint where digits are shown, train three networks in workers, watch their accuracy at every place. */
import { Surface, ink } from "./drawing.js";
import { FIELD, KINDS, PLACES } from "./network.js";
import { EPOCHS, TEST_DIGITS, loadDigits, recognised, training } from "./training.js";

const COUNT = PLACES.rows * PLACES.columns;
const EACH_TIME = 15, AT_THE_END = 100; // test digits
const APART = 12; // pixels after which the grids of all three layers repeat

const PRESETS = {
  left: (row, column) => column < 5,
  middle: (row, column) => column > 5 && column < 11,
  stripes: (row, column) => column === 2 || column === 8,
  none: () => false,
};
const PLACES_ROWS = Array.from({ length: PLACES.rows }, (_, row) => row);
const paintedBy = (preset) => Array.from({ length: COUNT }, (_, n) =>
  PRESETS[preset](Math.floor(n / PLACES.columns), n % PLACES.columns));
const asText = (painted) => PLACES_ROWS.map((row) =>
  parseInt(painted.slice(row * PLACES.columns, (row + 1) * PLACES.columns).map(Number).join(""), 2).toString(32)).join("-");
const asPlaces = (text) => text.split("-").flatMap((row) =>
  [...parseInt(row, 32).toString(2).padStart(PLACES.columns, "0")].map((bit) => bit === "1"));

export class FieldView {
  constructor(settings, { find, changed, startWorker }) {
    Object.assign(this, { settings, find, changed, startWorker, playing: false, dirty: true, workers: [] });
    settings.remember("field.places", asText(paintedBy("left")),
      (text) => /^[0-9a-v]{1,4}(-[0-9a-v]{1,4}){4}$/.test(text) && asPlaces(text).length === COUNT);
    this.digits = loadDigits();
    this.cursor = 2 * PLACES.columns + 2;
    this.digit = this.digits.labels.indexOf(3);
    this.results = new Map();
    const redraw = () => this.redraw();
    const flat = (width) => (width * PLACES.rows) / PLACES.columns;
    this.paint = new Surface(find("field-paint"), flat, redraw);
    this.view = new Surface(find("field-view"), (width) => (width * FIELD.height) / FIELD.width, redraw);
    this.maps = new Map(KINDS.map((kind) => [kind, new Surface(document.querySelector(`figure[data-kind=${kind}] canvas`), flat, redraw)]));
    this.listen();
  }

  listen() {
    const { canvas } = this.paint;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const place = this.placeAt(event);
      if (place === null) return;
      this.brush = !this.painted[place];
      this.put(place, this.brush);
    });
    canvas.addEventListener("pointermove", (event) => {
      const place = this.placeAt(event);
      if (place === null) return;
      if (this.brush !== undefined) this.put(place, this.brush);
      else this.look(place);
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { this.brush = undefined; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const button of document.querySelectorAll("[data-paint]")) {
      button.addEventListener("click", () => this.settings.set("field.places", asText(paintedBy(button.dataset.paint))));
    }
    this.find("field-train").addEventListener("click", () => (this.workers.length ? this.stop("Stopped.") : this.train()));
    this.settings.listen("field", () => {
      this.forget();
      this.redraw();
    });
  }

  get painted() {
    return asPlaces(this.settings.text("field.places"));
  }

  placeAt(event) {
    const [x, y] = this.paint.pointer(event);
    const cell = this.paint.width / PLACES.columns;
    const [row, column] = [Math.floor(y / cell), Math.floor(x / cell)];
    return row < 0 || column < 0 || row >= PLACES.rows || column >= PLACES.columns ? null : row * PLACES.columns + column;
  }

  look(place) {
    if (place === this.cursor) return;
    this.cursor = place;
    this.redraw();
  }

  put(place, on) {
    const { painted } = this;
    painted[place] = on;
    this.look(place);
    this.settings.set("field.places", asText(painted));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -PLACES.columns, ArrowDown: PLACES.columns }[event.key];
    const [row, column] = [Math.floor(this.cursor / PLACES.columns), this.cursor % PLACES.columns];
    if (event.key === " " || event.key === "Enter") this.put(this.cursor, !this.painted[this.cursor]);
    else if (step === undefined) return;
    else if ((step !== -1 || column > 0) && (step !== 1 || column < PLACES.columns - 1)) {
      const next = row * PLACES.columns + column + step;
      if (next >= 0 && next < COUNT) this.look(next);
    }
    event.preventDefault();
  }

  train() {
    const places = this.painted.flatMap((on, place) => (on ? [place] : []));
    if (places.length === 0) {
      this.say("Paint at least one place first.");
      return;
    }
    this.results.clear();
    this.started = performance.now();
    this.find("field-train").textContent = "Stop";
    this.say("Training…");
    this.waiting = new Set(KINDS);
    this.workers = KINDS.map((kind) => {
      const worker = this.startWorker();
      worker.onmessage = ({ data }) => this.hear(data);
      worker.onerror = (event) => this.stop(`The worker failed: ${event.message}`);
      worker.postMessage({ kind, places });
      return worker;
    });
    this.redraw();
  }

  hear({ kind, progress, right, tested, done }) {
    document.querySelector(`figure[data-kind=${kind}] progress`).value = progress;
    if (right) this.results.set(kind, { right, tested });
    if (done) this.waiting.delete(kind);
    if (this.waiting.size === 0) {
      this.stop(`Trained and tested in ${((performance.now() - this.started) / 1000).toFixed(1)} s, ${AT_THE_END} test digits at each place.`);
    }
    if (right) this.redraw();
  }

  stop(text) {
    this.workers.forEach((worker) => worker.terminate());
    this.workers = [];
    this.find("field-train").textContent = "Train three networks";
    this.say(text);
  }

  /** What was trained elsewhere says nothing about these places. */
  forget() {
    this.stop("");
    this.results.clear();
    for (const bar of document.querySelectorAll(".maps progress")) bar.value = 0;
  }

  say(text) {
    this.note = text;
    this.redraw();
  }

  redraw() {
    this.dirty = true;
    this.changed();
  }

  draw() {
    const { painted } = this;
    this.drawPaint(painted);
    this.drawView();
    for (const kind of KINDS) this.drawMap(kind, painted);
    this.write(painted);
  }

  drawPaint(painted) {
    const context = this.paint.clear();
    const cell = this.paint.width / PLACES.columns;
    painted.forEach((on, place) => {
      const [x, y] = [(place % PLACES.columns) * cell, Math.floor(place / PLACES.columns) * cell];
      context.fillStyle = ink(on ? "accent" : "cell");
      context.fillRect(x + 0.75, y + 0.75, cell - 1.5, cell - 1.5);
      if (place === this.cursor) {
        context.strokeStyle = ink("ink");
        context.lineWidth = 2;
        context.strokeRect(x + 2, y + 2, cell - 4, cell - 4);
      }
    });
  }

  drawView() {
    const context = this.view.clear();
    const cell = this.view.width / FIELD.width;
    context.fillStyle = "#0b0d13";
    context.fillRect(0, 0, this.view.width, this.view.height);
    const [row, column] = [Math.floor(this.cursor / PLACES.columns), this.cursor % PLACES.columns];
    for (let n = 0; n < 64; n++) {
      const level = Math.round(255 * this.digits.pixels[64 * this.digit + n]);
      if (level === 0) continue;
      context.fillStyle = `rgb(${level} ${level} ${level})`;
      context.fillRect((column + (n % 8)) * cell, (row + Math.floor(n / 8)) * cell, cell + 0.3, cell + 0.3);
    }
  }

  drawMap(kind, painted) {
    const surface = this.maps.get(kind);
    const context = surface.clear();
    const cell = surface.width / PLACES.columns;
    const result = this.results.get(kind);
    context.font = `${Math.min(cell * 0.36, 13)}px system-ui, sans-serif`;
    context.textAlign = "center";
    for (let place = 0; place < COUNT; place++) {
      const [x, y] = [(place % PLACES.columns) * cell, Math.floor(place / PLACES.columns) * cell];
      const accuracy = result ? result.right[place] / result.tested : null;
      context.fillStyle = accuracy === null ? ink("cell") : viridis(accuracy);
      context.fillRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
      if (accuracy === null || cell < 18) continue;
      context.fillStyle = accuracy > 0.6 ? "#10131c" : "#ffffff";
      context.fillText(Math.round(100 * accuracy), x + cell / 2, y + cell / 2 + 0.5);
    }
    frame(context, painted, cell);
    const columns = columnAccuracies(result);
    surface.canvas.setAttribute("aria-label", `Accuracy of the ${kind} network, in percent by the column of the digit: ${columns ? columns.join(", ") : "not trained yet"}`);
  }

  write(painted) {
    const further = painted.map((on, n) => !on && [-APART, APART].some((shift) => {
      const column = (n % PLACES.columns) + shift;
      return column >= 0 && column < PLACES.columns && painted[n + shift];
    }));
    const parts = [painted, further, painted.map((on, n) => !on && !further[n])];
    for (const kind of KINDS) {
      const cells = document.querySelectorAll(`#field-table tr[data-kind=${kind}] td`);
      parts.forEach((part, i) => { cells[i].textContent = meanAccuracy(this.results.get(kind), part); });
    }
    const count = painted.filter(Boolean).length;
    this.find("field-note").textContent = this.note || `${count} of ${COUNT} places painted.`;
    this.note = this.workers.length || this.results.size ? this.note : "";
  }
}

/** Draw the border of the painted places, within the canvas. */
function frame(context, painted, cell) {
  const { rows, columns } = PLACES;
  const on = (row, column) => row >= 0 && column >= 0 && row < rows && column < columns && painted[row * columns + column];
  const at = (place, most) => Math.min(Math.max(place * cell, 1.25), most * cell - 1.25);
  const line = (row, column, toRow, toColumn) => {
    context.moveTo(at(column, columns), at(row, rows));
    context.lineTo(at(toColumn, columns), at(toRow, rows));
  };
  context.strokeStyle = "#d95f02";
  context.lineWidth = 2.5;
  context.lineCap = "square";
  context.beginPath();
  for (let row = 0; row <= rows; row++) {
    for (let column = 0; column <= columns; column++) {
      if (on(row, column) !== on(row - 1, column) && column < columns) line(row, column, row, column + 1);
      if (on(row, column) !== on(row, column - 1) && row < rows) line(row, column, row + 1, column);
    }
  }
  context.stroke();
}

function columnAccuracies(result) {
  if (!result) return null;
  return Array.from({ length: PLACES.columns }, (_, column) => {
    const right = PLACES_ROWS.reduce((sum, row) => sum + result.right[row * PLACES.columns + column], 0);
    return Math.round((100 * right) / (PLACES.rows * result.tested));
  });
}

function meanAccuracy(result, part) {
  const places = part.flatMap((on, place) => (on ? [place] : []));
  if (!result || places.length === 0) return "–";
  return String(Math.round((100 * places.reduce((sum, place) => sum + result.right[place], 0)) / (places.length * result.tested)));
}

const VIRIDIS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"]
  .map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));

/** The colours of README's picture, from 0 to 1. */
function viridis(value) {
  const place = Math.min(Math.max(value, 0), 1) * (VIRIDIS.length - 1);
  const below = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const channels = VIRIDIS[below].map((from, i) => Math.round(from + (place - below) * (VIRIDIS[below + 1][i] - from)));
  return `rgb(${channels.join(" ")})`;
}

/** What a worker does: train one network, report how far it is, and test it twice in every epoch. */
export function trainAndReport({ kind, places }, report) {
  const digits = loadDigits();
  let network, tests = 0;
  for (const { network: trained, step, steps } of training(kind, digits, places)) {
    network = trained;
    const progress = 0.95 * (step / steps);
    if (step % Math.floor(steps / EPOCHS / 2) === 0 && step < steps) {
      const first = (EACH_TIME * tests++) % (TEST_DIGITS - EACH_TIME);
      report({ kind, progress, right: recognised(network, digits, first, first + EACH_TIME), tested: EACH_TIME });
    } else if (step % 10 === 0) report({ kind, progress });
  }
  report({ kind, progress: 1, right: recognised(network, digits, 0, AT_THE_END), tested: AT_THE_END, done: true });
}
