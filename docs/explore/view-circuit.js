/** Part 2: rates within a presentation, and what they do to the weights over a night. */
import { CONSTANTS, circuitAtRest, circuitLearningRate, circuitWeight, eulerRates, present, presentationMaps, rateFixedPoint } from "./circuit.js";
import { Plot, Surface, ink, ticks } from "./drawing.js";
import { leftOf } from "./neurons.js";
import { Random } from "./random.js";
import { negativeLogSnr } from "./sharing.js";
import { leastNegativeLogSnr } from "./theory.js";
import { decimal } from "./view-layer.js";

const MOST = 10_000; // presentations
const CROWD = { neurons: 100, inputs: 9, decay: 0.01 };
const SHOWN = 40; // neurons whose rates are drawn

/** Neurons with weights from N(1, 1) that share through the circuit of Eq. 8. */
export class CircuitNight {
  constructor(constants, seed = 5) {
    this.constants = { ...CONSTANTS, ...constants };
    this.random = new Random(seed);
    const weight = Float64Array.from({ length: CROWD.neurons * CROWD.inputs }, () => 1 + this.random.normal());
    this.shown = this.random.fillNormal(new Float64Array(CROWD.inputs));
    this.state = circuitAtRest(weight, CROWD.neurons);
    this.meanBefore = this.mean();
    this.presentations = 0;
    this.best = { snr: Infinity, presentations: 0 };
    this.floors = {
      ideal: leastNegativeLogSnr(weight, CROWD.neurons, { decay: CROWD.decay }),
      biased: leastNegativeLogSnr(weight, CROWD.neurons, { decay: CROWD.decay, inhibition: this.constants.inhibition }),
    };
    this.history = [];
    this.sample();
  }

  present() {
    const steps = this.constants.presentationMs / this.constants.stepMs;
    const pattern = this.random.fillNormal(new Float64Array(CROWD.inputs));
    const rates = Array.from({ length: steps }, (_, i) => circuitLearningRate(this.presentations * steps + i));
    const norm = pattern.reduce((sum, value) => sum + value * value, 0);
    present(this.state, pattern, presentationMaps(norm, rates, { decay: CROWD.decay, constants: this.constants }));
    this.presentations++;
  }

  sample() {
    const snr = negativeLogSnr(circuitWeight(this.state), CROWD.neurons);
    const lost = 1 - leftOf(this.mean(), this.meanBefore);
    this.history.push({ presentations: this.presentations, snr, lost });
    if (snr < this.best.snr) {
      const { displacement, velocity, aboveBias, inhibitory } = this.state;
      const state = { ...this.state, displacement: displacement.slice(), velocity: velocity.slice(), aboveBias: aboveBias.slice(), inhibitory };
      this.best = { snr, presentations: this.presentations, state };
    }
  }

  /** Whether the best moment has passed: nothing better for a third as long again. */
  get pastBest() {
    return this.presentations > 4 / 3 * this.best.presentations + 100;
  }

  /** Go back to the best moment. */
  rewind() {
    this.state = { ...this.best.state };
    this.presentations = this.best.presentations;
    this.history = this.history.filter(({ presentations }) => presentations <= this.presentations);
  }

  mean() {
    const mean = new Float64Array(CROWD.inputs);
    circuitWeight(this.state).forEach((value, n) => { mean[n % CROWD.inputs] += value / CROWD.neurons; });
    return mean;
  }

  /** What the shown pattern drives each neuron with, under the present weights. */
  drive() {
    const drive = new Float64Array(CROWD.neurons);
    circuitWeight(this.state).forEach((value, n) => {
      drive[Math.floor(n / CROWD.inputs)] += value * this.shown[n % CROWD.inputs];
    });
    return drive;
  }
}

export class CircuitView {
  constructor(settings, { find, changed }) {
    Object.assign(this, { settings, find, changed, playing: false, dirty: true });
    const redraw = () => this.redraw();
    this.rates = new Surface(find("circuit-rates"), (width) => (width < 500 ? 220 : 260), redraw);
    this.chart = new Surface(find("circuit-chart"), (width) => (width < 500 ? 250 : 280), redraw);
    find("circuit-play").addEventListener("click", () => this.play(!this.playing));
    find("circuit-restart").addEventListener("click", () => this.restart());
    settings.listen("circuit", (name) => this.set(name));
    this.restart();
  }

  get constants() {
    const [inhibition, tauMs, bias] = ["alpha", "tau", "bias"].map((name) => this.settings.number(`circuit.${name}`));
    return { inhibition, tauMs, bias };
  }

  set(name) {
    if (name === "circuit.alpha" || name === "circuit.tau") this.restart();
    else if (name === "circuit.bias") {
      this.night.constants.bias = this.constants.bias;
      this.range = null;
    }
    else if (this.settings.text("circuit.stop") === "1" && this.night.pastBest) this.stop();
    this.redraw();
  }

  restart() {
    this.night = new CircuitNight(this.constants);
    this.range = null;
    this.redraw();
  }

  play(on) {
    if (on && this.night.presentations >= MOST) this.restart();
    this.playing = on;
    this.find("circuit-play").textContent = on ? "Pause" : "Play";
    this.redraw();
  }

  stop() {
    this.night.rewind();
    this.play(false);
  }

  /** Few presentations at a time at first, more later, as the axis of the chart asks. */
  move() {
    const { night } = this;
    const count = Math.min(1 + Math.floor(night.presentations / 40), 60, MOST - night.presentations);
    for (let i = 0; i < count; i++) night.present();
    night.sample();
    this.dirty = true;
    if (this.settings.text("circuit.stop") === "1" && night.pastBest) this.stop();
    else if (night.presentations >= MOST) this.play(false);
  }

  redraw() {
    this.dirty = true;
    this.changed();
  }

  draw() {
    const { night } = this;
    const drive = night.drive();
    const course = eulerRates(drive, { steps: 150, constants: night.constants });
    this.drawRates(course, rateFixedPoint(drive, night.constants));
    this.drawChart();
    const put = (id, text) => { this.find(id).textContent = text; };
    const last = night.history.at(-1);
    put("circuit-presentations", night.presentations.toLocaleString("en"));
    put("circuit-minutes", `${(night.presentations * night.constants.presentationMs / 60_000).toFixed(1)} minutes`);
    put("circuit-negative", course.rates.at(-1).filter((rate) => rate < 0).length);
    put("circuit-neurons", CROWD.neurons);
    put("circuit-snr", decimal(last.snr));
    put("circuit-best", `${decimal(night.best.snr)} after ${night.best.presentations.toLocaleString("en")}`);
    put("circuit-bias", `${Math.round(100 * last.lost)} %`);
  }

  drawRates(course, settled) {
    const { width, height } = this.rates;
    const context = this.rates.clear();
    const drawn = course.rates.map((rates) => rates.subarray(0, SHOWN));
    const all = [...drawn.flatMap((rates) => [Math.min(...rates), Math.max(...rates)]), ...course.inhibitory, 0];
    this.range ??= [Math.floor(Math.min(...all) - 0.5), Math.ceil(Math.max(...all) + 0.5)]; // kept: one sees them meet
    const { range } = this;
    const plot = new Plot(context, { left: 34, top: 20, width: width - 34 - 14, height: height - 20 - 24, x: [0, 150], y: range });
    context.fillStyle = ink("cell");
    context.fillRect(plot.left, plot.y(0), plot.width, plot.top + plot.height - plot.y(0));
    plot.horizontals(ticks(...range, 6));
    plot.bottomLabels([0, 50, 100, 150], (ms) => `${ms} ms`);
    for (let i = 0; i < SHOWN; i++) {
      plot.line(drawn.map((rates, ms) => [ms, rates[i]]), ink("accent"), { width: 0.8 });
      plot.line(drawn.map((rates, ms) => [ms, rates[i] < 0 ? rates[i] : NaN]), ink("negative"), { width: 1.4 });
      context.fillStyle = ink(settled[i] < 0 ? "negative" : "accent");
      context.fillRect(plot.left + plot.width + 3, plot.y(settled[i]) - 0.75, 8, 1.5);
    }
    plot.line(course.inhibitory.map((rate, ms) => [ms, rate]), ink("ink"), { width: 2.6 });
    const middle = 75;
    plot.label("inhibitory", plot.x(middle), plot.y(course.inhibitory[middle]) - 11, ink("ink"), "center");
    plot.label("rates within a presentation; at the right, Eq. 9", plot.left + 4, 9, ink("soft"));
    if (range[0] < -1) plot.label("below zero", plot.left + plot.width - 6, plot.top + plot.height - 10, ink("negative"), "right");
  }

  drawChart() {
    const { width, height } = this.chart;
    const context = this.chart.clear();
    const { night } = this;
    const scale = (presentations) => Math.log10(1 + presentations);
    const [left, upper] = [42, Math.round((height - 60) * 0.62)];
    const area = { left, width: width - left - 10, x: [0, scale(MOST)] };
    const low = Math.floor(Math.min(night.floors.ideal, night.best.snr)) - 2;
    const high = Math.max(1, ...night.history.map(({ snr }) => Math.ceil(snr)));
    const top = new Plot(context, { ...area, top: 18, height: upper, y: [low, high] });
    top.horizontals(ticks(low, high, 5));
    const across = (value) => [[0, value], [scale(MOST), value]];
    top.line(across(night.floors.ideal), ink("floor"), { width: 1.5, dash: [6, 4] });
    top.label("perfect inhibition ends here (Eq. 5)", left + 6, top.y(night.floors.ideal) + 10, ink("floor"));
    top.line(across(night.floors.biased), ink("bias"), { width: 1.5, dash: [2, 3] });
    top.label(`α = ${night.constants.inhibition} ends here`, left + 6, top.y(night.floors.biased) + 10, ink("bias"));
    top.line(night.history.map(({ presentations, snr }) => [scale(presentations), snr]), ink("accent"));
    top.label("−log SNR", left + 4, 8, ink("soft"));
    this.markBest(top, scale);

    const bottom = new Plot(context, { ...area, top: upper + 40, height: height - upper - 64, y: [0, 1] });
    bottom.horizontals([0, 0.5, 1], (value) => `${100 * value} %`);
    bottom.line(night.history.map(({ presentations, lost }) => [scale(presentations), Math.min(Math.max(lost, 0), 1)]), ink("bias"));
    bottom.label("the bias of finite α: mean weight lost", left + 4, upper + 30, ink("soft"));
    bottom.bottomLabels([0, 10, 100, 1000, 10_000].map(scale), (value) => Math.round(10 ** value - 1).toLocaleString("en"));
  }

  markBest(plot, scale) {
    const { night } = this;
    if (night.best.presentations === 0) return;
    const [x, y] = [plot.x(scale(night.best.presentations)), plot.y(night.best.snr)];
    plot.context.fillStyle = ink("floor");
    plot.context.beginPath();
    plot.context.arc(x, y, 4.5, 0, 2 * Math.PI);
    plot.context.fill();
    if (night.pastBest || night.presentations === night.best.presentations && !this.playing) {
      plot.label("stop here", x, y + 15, ink("floor"), x > plot.left + plot.width - 40 ? "right" : "center");
    }
  }
}
