/** Neurons that learn apart by day and pull together by night. */
import { CONSTANTS, circuitAtRest, circuitLearningRate, circuitWeight, present, presentationMaps } from "./circuit.js";
import { Random } from "./random.js";
import { hebbianStep, negativeLogSnr, shareWeights } from "./sharing.js";
import { leastNegativeLogSnr, noisyFixedPoint } from "./theory.js";

const STEPS = CONSTANTS.presentationMs / CONSTANTS.stepMs;

export class Neurons {
  constructor(neurons, k, seed = 0) {
    Object.assign(this, { neurons, k, inputs: k * k, asleep: false, diverged: false, steps: 0 });
    this.random = new Random(seed);
    this.common = edge(k);
    this.wishes = this.scattered();
    this.weight = this.scattered();
    this.own = new Float64Array(this.inputs);
    this.initial = this.weight;
  }

  /** What all have in common, and N(0, 1) for each neuron's own part of the world. */
  scattered() {
    return Float64Array.from({ length: this.neurons * this.inputs },
      (_, n) => this.common[n % this.inputs] + this.random.normal());
  }

  /** By day each neuron sees inputs of its own and follows the delta rule towards what they ask of it. */
  learnApart() {
    const { inputs, weight, wishes, own } = this;
    const rate = Math.min(0.02, 0.5 / inputs);
    for (let i = 0; i < this.neurons; i++) {
      this.random.fillNormal(own);
      let error = 0;
      for (let j = 0, n = i * inputs; j < inputs; j++, n++) error += (wishes[n] - weight[n]) * own[j];
      for (let j = 0, n = i * inputs; j < inputs; j++, n++) weight[n] += rate * error * own[j];
    }
    this.steps++;
  }

  fallAsleep() {
    this.asleep = true;
    this.steps = 0;
    this.initial = this.weight.slice();
    this.velocity = new Float64Array(this.weight.length);
    this.noise = new Float64Array(this.weight.length);
    this.circuit = circuitAtRest(this.weight, this.neurons);
  }

  wakeUp() {
    this.asleep = false;
    this.steps = 0;
    this.wishes = this.scattered();
  }

  /** Some patterns of the night, by one of the rules. */
  pullTogether({ rule, ...options }, patterns = 1) {
    if (rule === "instant") shareWeights(this.weight, new Int32Array(this.neurons));
    for (let n = 0; n < patterns; n++, this.steps++) {
      if (rule === "hebbian") this.hebbian(this.pattern(), options);
      else if (rule === "circuit") this.present(this.pattern(), options);
    }
    if (rule === "circuit") this.weight = circuitWeight(this.circuit);
    this.diverged = !this.weight.every((value) => Math.abs(value) < 1e4);
  }

  pattern() {
    return this.random.fillNormal(new Float64Array(this.inputs));
  }

  hebbian(pattern, { gamma: decay, sigma, rate, momentum }) {
    const noise = sigma > 0 ? this.random.fillNormal(this.noise, sigma) : null;
    const rateNow = rate / (1 + (this.steps + 1) / 1000); // with η = 0.0005 the paper's 0.5 / (1000 + t)
    hebbianStep(this.weight, this.velocity, this.initial, [pattern], { rate: rateNow, decay, momentum, noise });
  }

  present(pattern, { gamma: decay, rate, momentum }) {
    const start = 0.6 * rate; // with η = 0.0005 the paper's 0.0003
    const rates = Float64Array.from({ length: STEPS }, (_, i) => circuitLearningRate(this.steps * STEPS + i, start));
    const norm = pattern.reduce((sum, value) => sum + value * value, 0);
    present(this.circuit, pattern, presentationMaps(norm, rates, { decay, constants: { ...CONSTANTS, momentum } }));
  }

  get negativeLogSnr() {
    return negativeLogSnr(this.weight, this.neurons);
  }

  /** −log SNR where Eq. 5 says that this night ends, and where noise lets it end. */
  floors({ gamma: decay, sigma: noise }) {
    return {
      exact: leastNegativeLogSnr(this.initial, this.neurons, { decay }),
      noisy: negativeLogSnr(noisyFixedPoint(this.initial, this.neurons, { decay, noise }), this.neurons),
    };
  }

  mean(weight = this.weight) {
    const mean = new Float64Array(this.inputs);
    for (let n = 0; n < weight.length; ) for (let j = 0; j < this.inputs; j++, n++) mean[j] += weight[n] / this.neurons;
    return mean;
  }

  /** How much of the mean filter at the start of the night is left. */
  get meanLeft() {
    return leftOf(this.mean(), this.mean(this.initial));
  }
}

/** The part of `before` that is still in `now`. */
export function leftOf(now, before) {
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  return dot(now, before) / dot(before, before);
}

/** An oriented edge, the feature that is common to all parts of the world. */
export function edge(k) {
  return Float64Array.from({ length: k * k }, (_, n) => {
    const [y, x] = [Math.floor(n / k), n % k].map((place) => (2 * (place + 0.5)) / k - 1);
    const [along, across] = [0.8 * x + 0.6 * y, 0.8 * y - 0.6 * x];
    return 1.9 * Math.sin(2.6 * across + 0.4) * Math.exp(-0.9 * (along * along + across * across));
  });
}
