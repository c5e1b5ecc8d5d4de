/**
 * The network of `sleepconv demo`, made small enough for a browser: three 3×3 layers of strides 1, 2 and 2 with 8, 16
 * and 32 channels, the strongest answer of each channel, then a linear classifier. It has no batch normalisation.
 *
 * Activations lie as rows × columns × channels inside a border of zeros. Layers have no bias, so where the digit is not
 * there is nothing, and only neurons whose window reaches the digit are computed.
 */
import { lateralGrids, shareWeights } from "./sharing.js";
import { Random } from "./random.js";

export const FIELD = { height: 12, width: 24, digit: 8 };
export const PLACES = { rows: FIELD.height - FIELD.digit + 1, columns: FIELD.width - FIELD.digit + 1 };
export const KINDS = ["convolutional", "local", "sleeping"];
const CLASSES = 10;
const STRIDES = [1, 2, 2];

export class Network {
  constructor(kind, { width = 8, seed = 0 } = {}) {
    const random = new Random(seed);
    this.kind = kind;
    this.layers = [];
    let [height, columns, channels] = [FIELD.height, FIELD.width, 1];
    for (const [index, stride] of STRIDES.entries()) {
      const layer = new Layer(kind, random, { height, columns, channels, stride, outputs: width * 2 ** index });
      this.layers.push(layer);
      [height, columns, channels] = [layer.outHeight, layer.outColumns, layer.outputs];
    }
    this.features = new Float32Array(channels);
    this.featureGradient = new Float32Array(channels);
    this.scores = new Float64Array(CLASSES);
    this.classifier = new Parameter(random.fillNormal(new Float32Array(CLASSES * (channels + 1)), 0.1));
    this.field = new Float32Array((FIELD.height + 2) * (FIELD.width + 2));
    if (kind === "sleeping") this.sleep();
  }

  /** Class scores for a digit whose upper left corner is at (row, column). */
  forward(pixels, offset, row, column) {
    this.field.fill(0);
    for (let y = 0; y < FIELD.digit; y++) {
      for (let x = 0; x < FIELD.digit; x++) {
        this.field[(row + y + 1) * (FIELD.width + 2) + column + x + 1] = pixels[offset + y * FIELD.digit + x];
      }
    }
    let box = { top: row, bottom: row + FIELD.digit - 1, left: column, right: column + FIELD.digit - 1 };
    let input = this.field;
    for (const layer of this.layers) {
      box = layer.forward(input, box);
      input = layer.output;
    }
    this.layers.at(-1).pool(this.features);
    const inputs = this.features.length;
    for (let c = 0; c < CLASSES; c++) {
      let score = this.classifier.value[c * (inputs + 1) + inputs];
      for (let j = 0; j < inputs; j++) score += this.classifier.value[c * (inputs + 1) + j] * this.features[j];
      this.scores[c] = score;
    }
    return this.scores;
  }

  /** Add the gradient of the cross-entropy of the last forward pass; return the cross-entropy. */
  backward(label) {
    const inputs = this.features.length;
    const most = Math.max(...this.scores);
    let total = 0;
    for (const score of this.scores) total += Math.exp(score - most);
    this.featureGradient.fill(0);
    for (let c = 0; c < CLASSES; c++) {
      const error = Math.exp(this.scores[c] - most) / total - (c === label ? 1 : 0);
      const start = c * (inputs + 1);
      this.classifier.gradient[start + inputs] += error;
      for (let j = 0; j < inputs; j++) {
        this.featureGradient[j] += error * this.classifier.value[start + j];
        this.classifier.gradient[start + j] += error * this.features[j];
      }
    }
    this.layers.at(-1).unpool(this.featureGradient);
    for (let l = this.layers.length - 1; l >= 0; l--) {
      const below = l > 0 ? this.layers[l - 1] : null;
      this.layers[l].backward(below ? below.output : this.field, below ? below.outputGradient : null);
    }
    return Math.log(total) + most - this.scores[label];
  }

  /** One step of Adam on the mean gradient of a batch, after which a sleeping network sleeps. */
  learn(batch, { layers, classifier }) {
    for (const layer of this.layers) layer.weight.step(layers, batch);
    this.classifier.step(classifier, batch);
    if (this.kind === "sleeping") this.sleep();
  }

  /** Give every filter the mean of its lateral grid. */
  sleep() {
    for (const layer of this.layers) shareWeights(layer.weight.value, layer.grids);
  }
}

/** A 3×3 layer with ReLU; a filter of its own at each position, or one for all if it is convolutional. */
class Layer {
  constructor(kind, random, { height, columns, channels, stride, outputs }) {
    Object.assign(this, { columns, channels, stride, outputs, inputs: 9 * channels });
    this.outHeight = Math.ceil(height / stride);
    this.outColumns = Math.ceil(columns / stride);
    const positions = this.outHeight * this.outColumns;
    this.grids = lateralGrids([this.outHeight, this.outColumns], { kernelSize: 3, stride });
    this.filterSize = outputs * this.inputs;
    this.filterStep = kind === "convolutional" ? 0 : this.filterSize;
    const filter = new Float32Array(this.filterSize * (kind === "convolutional" ? 1 : positions));
    // Averaging the filters of a grid shrinks them by the root of its number; a sleeping network starts that much larger.
    const together = kind === "sleeping" ? positions / (1 + Math.max(...this.grids)) : 1;
    this.weight = new Parameter(random.fillNormal(filter, Math.sqrt((2 / this.inputs) * together)));
    this.output = new Float32Array((this.outHeight + 2) * (this.outColumns + 2) * outputs);
    this.outputGradient = new Float32Array(this.output.length);
    this.strongest = new Int32Array(outputs);
    this.values = new Float32Array(this.inputs);
    this.places = new Int32Array(this.inputs);
    this.valueGradient = new Float32Array(this.inputs);
  }

  /** Compute the neurons whose windows reach into `box`; return the box of their positions. */
  forward(input, box) {
    const { values, places, output, outputs, inputs, stride } = this;
    const weight = this.weight.value;
    output.fill(0);
    this.box = {
      top: Math.max(Math.ceil((box.top - 1) / stride), 0),
      bottom: Math.min(Math.floor((box.bottom + 1) / stride), this.outHeight - 1),
      left: Math.max(Math.ceil((box.left - 1) / stride), 0),
      right: Math.min(Math.floor((box.right + 1) / stride), this.outColumns - 1),
    };
    for (let y = this.box.top; y <= this.box.bottom; y++) {
      for (let x = this.box.left; x <= this.box.right; x++) {
        const seen = this.gather(input, y, x);
        let w = (y * this.outColumns + x) * this.filterStep;
        let out = this.place(y, x);
        for (let c = 0; c < outputs; c += 4, w += 4 * inputs, out += 4) {
          let a = 0, b = 0, d = 0, e = 0;
          for (let j = 0; j < seen; j++) {
            const value = values[j], n = w + places[j];
            a += value * weight[n];
            b += value * weight[n + inputs];
            d += value * weight[n + 2 * inputs];
            e += value * weight[n + 3 * inputs];
          }
          if (a > 0) output[out] = a;
          if (b > 0) output[out + 1] = b;
          if (d > 0) output[out + 2] = d;
          if (e > 0) output[out + 3] = e;
        }
      }
    }
    return this.box;
  }

  /** Inputs of zero are left out here too: they came from neurons below their threshold, which learn nothing. */
  backward(input, inputGradient) {
    const { values, places, valueGradient, output, outputGradient, outputs, inputs } = this;
    const { value: weight, gradient } = this.weight;
    if (inputGradient) inputGradient.fill(0);
    for (let y = this.box.top; y <= this.box.bottom; y++) {
      for (let x = this.box.left; x <= this.box.right; x++) {
        const seen = this.gather(input, y, x);
        valueGradient.fill(0);
        const start = (y * this.outColumns + x) * this.filterStep;
        const out = this.place(y, x);
        for (let c = 0; c < outputs; c++) {
          const error = outputGradient[out + c];
          if (error === 0 || output[out + c] === 0) continue;
          const w = start + c * inputs;
          for (let j = 0; j < seen; j++) {
            const place = places[j];
            gradient[w + place] += error * values[j];
            valueGradient[place] += error * weight[w + place];
          }
        }
        if (inputGradient) this.scatter(inputGradient, y, x);
      }
    }
  }

  /**
   * List what the neuron at (y, x) sees: values other than zero and their places in its filter; return how many.
   * The border of zeros makes its window start at (y, x)·stride.
   */
  gather(input, y, x) {
    const { values, places, channels } = this;
    const row = (this.columns + 2) * channels;
    const start = y * this.stride * row + x * this.stride * channels;
    let seen = 0;
    for (let r = 0, j = 0; r < 3; r++) {
      for (let n = start + r * row, end = n + 3 * channels; n < end; n++, j++) {
        if (input[n] !== 0) {
          places[seen] = j;
          values[seen++] = input[n];
        }
      }
    }
    return seen;
  }

  scatter(inputGradient, y, x) {
    const { valueGradient, channels } = this;
    const row = (this.columns + 2) * channels;
    const start = y * this.stride * row + x * this.stride * channels;
    for (let r = 0, j = 0; r < 3; r++) {
      for (let n = start + r * row, end = n + 3 * channels; n < end; n++, j++) inputGradient[n] += valueGradient[j];
    }
  }

  /** The strongest answer of each channel, wherever it comes from. */
  pool(features) {
    features.fill(0);
    this.strongest.fill(-1);
    this.eachNeuron((place) => {
      for (let c = 0; c < this.outputs; c++) {
        if (this.output[place + c] > features[c]) {
          features[c] = this.output[place + c];
          this.strongest[c] = place + c;
        }
      }
    });
  }

  unpool(featureGradient) {
    this.outputGradient.fill(0);
    for (let c = 0; c < this.outputs; c++) {
      if (this.strongest[c] >= 0) this.outputGradient[this.strongest[c]] = featureGradient[c];
    }
  }

  eachNeuron(visit) {
    for (let y = this.box.top; y <= this.box.bottom; y++) {
      for (let x = this.box.left; x <= this.box.right; x++) visit(this.place(y, x));
    }
  }

  place(y, x) {
    return ((y + 1) * (this.outColumns + 2) + x + 1) * this.outputs;
  }
}

/** Weights with their gradient and Adam's moments. */
class Parameter {
  constructor(value) {
    this.value = value;
    this.gradient = new Float32Array(value.length);
    this.mean = new Float32Array(value.length);
    this.square = new Float32Array(value.length);
    this.steps = 0;
  }

  step(rate, batch) {
    this.steps++;
    const { value, gradient, mean, square } = this;
    const scale = rate / (1 - 0.9 ** this.steps);
    const unbias = 1 / (1 - 0.999 ** this.steps);
    for (let n = 0; n < value.length; n++) {
      if (gradient[n] === 0 && mean[n] === 0) continue; // never seen
      const slope = gradient[n] / batch;
      const first = (mean[n] += 0.1 * (slope - mean[n]));
      const second = (square[n] += 0.001 * (slope * slope - square[n]));
      value[n] -= (scale * first) / (Math.sqrt(second * unbias) + 1e-8);
      gradient[n] = 0;
    }
  }
}
