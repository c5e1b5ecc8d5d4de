/** Part 1: filters that drift apart by day and meet again by night. */
import { FilterPainter, Plot, Surface, ink, ticks } from "./drawing.js";
import { Neurons } from "./neurons.js";
import { survivingMean } from "./theory.js";

const DAY = 400, NIGHT = 2000; // steps, when day and night come by themselves
const STEPS_PER_FRAME = { day: 5, night: 10 };
const KEPT = 600; // samples of the chart, one per frame

export class LayerView {
  constructor(settings, { find, changed }) {
    Object.assign(this, { settings, find, changed, playing: false, dirty: true });
    this.start();
    this.painter = new FilterPainter(2.6);
    const redraw = () => this.redraw();
    this.filters = new Surface(find("layer-filters"), (width) => this.arrangement(width).height, redraw);
    this.chart = new Surface(find("layer-chart"), (width) => (width < 500 ? 170 : 210), redraw);
    find("layer-play").addEventListener("click", () => this.play(!this.playing));
    find("layer-switch").addEventListener("click", () => this.switch());
    find("layer-restart").addEventListener("click", () => this.restart());
    settings.listen("layer", (name) => this.set(name));
  }

  get options() {
    const [gamma, sigma, rate, momentum] = ["gamma", "sigma", "rate", "momentum"].map((name) => this.settings.number(`layer.${name}`));
    const rule = this.settings.text("layer.rule");
    return { rule, gamma, sigma: rule === "hebbian" ? sigma : 0, rate, momentum };
  }

  set(name) {
    if (name === "layer.k" || name === "layer.neurons") this.restart();
    else if (this.neurons.diverged) this.restart();
    else if (name === "layer.rule" && this.neurons.asleep) {
      this.neurons.fallAsleep();
    }
    const { rule } = this.options;
    for (const each of ["gamma", "rate", "momentum"]) this.settings.controls.get(`layer.${each}`)[0].disabled = rule === "instant";
    this.settings.controls.get("layer.sigma")[0].disabled = rule !== "hebbian";
    this.measureFloors();
    this.redraw();
  }

  restart() {
    this.start();
    this.filters.fit();
    this.redraw();
  }

  start() {
    this.neurons = new Neurons(this.settings.number("layer.neurons"), this.settings.number("layer.k"), 1);
    this.history = [];
    this.time = 0;
    this.measureFloors();
    this.sample();
  }

  play(on) {
    this.playing = on;
    this.find("layer-play").textContent = on ? "Pause" : "Play";
    this.redraw();
  }

  /** Fall asleep, or wake up. */
  switch() {
    if (this.neurons.asleep) this.neurons.wakeUp();
    else this.neurons.fallAsleep();
    this.measureFloors();
    if (!this.playing) this.advance(STEPS_PER_FRAME.night);
    this.redraw();
  }

  measureFloors() {
    this.floors = this.neurons.floors(this.options);
  }

  move() {
    this.advance(this.neurons.asleep ? STEPS_PER_FRAME.night : STEPS_PER_FRAME.day);
    this.dirty = true;
  }

  advance(steps) {
    const { neurons } = this;
    if (neurons.diverged) return;
    const { options } = this;
    if (neurons.asleep) neurons.pullTogether(options, steps);
    else for (let step = 0; step < steps; step++) neurons.learnApart();
    this.time += steps;
    this.sample();
    const over = neurons.steps >= (neurons.asleep ? (options.rule === "instant" ? NIGHT / 8 : NIGHT) : DAY);
    if (over && this.settings.text("layer.alternate") === "1" && !neurons.diverged) this.switch();
  }

  sample() {
    const { asleep, negativeLogSnr: snr } = this.neurons;
    this.history.push({ time: this.time, asleep, snr, ...(asleep ? this.floors : { exact: NaN, noisy: NaN }) });
    if (this.history.length > KEPT) this.history.shift();
  }

  redraw() {
    this.dirty = true;
    this.changed();
  }

  draw() {
    this.drawFilters();
    this.drawChart();
    this.write();
  }

  /** Where the mean filter and the filters are drawn on a canvas of this width. */
  arrangement(width) {
    const { neurons, k } = this.neurons;
    const large = Math.floor(Math.min(width * 0.2, 130) / k) * k;
    const left = large + (width < 500 ? 14 : 26);
    const cell = largestCell(width - left, Math.min(Math.max(width * 0.4, 230), 290), neurons);
    const columns = Math.floor((width - left) / cell);
    return { large, left, cell, columns, height: Math.max(Math.ceil(neurons / columns) * cell, large + 26) };
  }

  drawFilters() {
    const context = this.filters.clear();
    const { neurons, k } = this.neurons;
    const { large, left, cell, columns } = this.arrangement(this.filters.width);
    const size = Math.max(cell - (cell > 20 ? 4 : 2), 1);
    const boxes = Array.from({ length: neurons }, (_, i) => [left + (i % columns) * cell, Math.floor(i / columns) * cell, size]);
    this.painter.paint(context, this.neurons.weight, k, boxes);
    this.meanPainter ??= new FilterPainter(this.painter.limit);
    this.meanPainter.paint(context, this.neurons.mean(), k, [[0, 0, large]]);
    context.fillStyle = ink("soft");
    context.textAlign = "left";
    context.fillText("their mean", 0, large + 14);
  }

  drawChart() {
    const { width, height } = this.chart;
    const context = this.chart.clear();
    const lows = this.history.map(({ exact, snr }) => Math.min(Number.isNaN(exact) ? 0 : exact, Math.max(snr, -16)));
    const bottom = Math.min(...lows, -4) - 2;
    const [left, top] = [34, 18];
    const [first, last] = [this.history[0].time, this.history.at(-1).time];
    const plot = new Plot(context, { left, top, width: width - left - 8, height: height - top - 12, x: [first, Math.max(last, first + 600)], y: [bottom, 4] });
    this.drawNights(plot);
    plot.horizontals(ticks(bottom, 4, 5));
    const of = (name) => this.history.map((sample) => [sample.time, sample[name]]);
    plot.line(of("exact"), ink("floor"), { width: 1.5, dash: [6, 4] });
    if (this.options.sigma > 0) plot.line(of("noisy"), ink("noise"), { width: 1.5, dash: [2, 3] });
    plot.line(of("snr").map(([x, y]) => [x, Math.max(y, bottom)]), ink("accent"));
    plot.label("−log SNR (lower: more alike)", left + 4, 8, ink("soft"));
  }

  drawNights(plot) {
    const { context } = plot;
    this.history.forEach(({ time, asleep }, i) => {
      const next = this.history[i + 1]?.time ?? time;
      context.fillStyle = ink(asleep ? "night-band" : "day-band");
      context.fillRect(plot.x(time), plot.top, plot.x(next) - plot.x(time) + 0.5, plot.height);
    });
  }

  /** How much of the mean the noise will leave. */
  meanAhead() {
    const { gamma: decay, sigma: noise } = this.options;
    return noise > 0 ? ` → ${percent(survivingMean({ decay, noise, neurons: this.neurons.neurons }))}` : "";
  }

  write() {
    const { neurons, floors, options } = this;
    const put = (id, text) => { this.find(id).textContent = text; };
    put("layer-phase", neurons.asleep ? "asleep" : "awake");
    this.find("layer-phase").classList.toggle("asleep", neurons.asleep);
    put("layer-switch", neurons.asleep ? "Wake up" : "Fall asleep");
    put("layer-snr", decimal(this.history.at(-1).snr));
    put("layer-floor", decimal(floors.exact));
    put("layer-noise-floor", options.rule === "hebbian" ? decimal(floors.noisy) : "–");
    put("layer-mean", neurons.asleep ? `${percent(neurons.meanLeft)}${this.meanAhead()}` : "–");
    put("layer-note", neurons.diverged ? "The weights grew without bound: choose a lower learning rate or less momentum." : "");
    this.find("layer-note").classList.toggle("warning", neurons.diverged);
  }
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** Two decimals, with a real minus sign; infinity as its symbol. */
export function decimal(value) {
  return (Number.isFinite(value) ? value.toFixed(2) : value < 0 ? "-∞" : "∞").replace("-", "−");
}

/** The side of the largest squares of which `count` fit into a box. */
export function largestCell(width, height, count) {
  for (let size = Math.floor(Math.min(width, height)); size > 1; size--) {
    if (Math.floor(width / size) * Math.floor(height / size) >= count) return size;
  }
  return 1;
}
