/**
 * Who shares with whom, and what sharing does to the weights: the page's twin of `sleepconv.functional`.
 * Weights are flat arrays, one filter after another; tests/explore compares every function with the package.
 */

const greatestCommonDivisor = (a, b) => (b === 0 ? a : greatestCommonDivisor(b, a % b));

/** The number of the lateral grid of each output neuron, flat: `lateral_grids`. */
export function lateralGrids(outputSize, { kernelSize, stride = 1, dilation = 1, period = null }) {
  let grids = Int32Array.of(0);
  for (const size of outputSize) {
    const own = greatestCommonDivisor(kernelSize, dilation) > 1 ? kernelSize * dilation : kernelSize;
    const repeats = period ?? own;
    const spacing = Math.min(repeats / greatestCommonDivisor(repeats, stride), size);
    const next = new Int32Array(grids.length * size);
    for (let i = 0; i < next.length; i++) next[i] = grids[Math.floor(i / size)] * spacing + ((i % size) % spacing);
    grids = next;
  }
  return grids;
}

/** Set every filter to the mean of its grid, in place: `share_weights_`. */
export function shareWeights(weight, grids) {
  const inputs = weight.length / grids.length;
  const count = 1 + grids.reduce((most, grid) => Math.max(most, grid), 0);
  const means = new Float64Array(count * inputs);
  const neurons = new Int32Array(count);
  for (let i = 0; i < grids.length; i++) {
    neurons[grids[i]]++;
    for (let j = 0; j < inputs; j++) means[grids[i] * inputs + j] += weight[i * inputs + j];
  }
  for (let grid = 0; grid < count; grid++) {
    for (let j = 0; j < inputs; j++) means[grid * inputs + j] /= neurons[grid];
  }
  for (let i = 0; i < grids.length; i++) {
    for (let j = 0; j < inputs; j++) weight[i * inputs + j] = means[grids[i] * inputs + j];
  }
  return weight;
}

/**
 * One step of Eq. 4, Δwᵢ ∝ −(zᵢ − κ z̄) x − γ (wᵢ − wᵢ^init), averaged over the patterns, in place: `hebbian_step_`.
 * κ is 1 for perfect inhibition and α / (1 + α) otherwise. With noise (neurons × patterns × inputs), neuron i sees
 * x + ξᵢ. Momentum is that of SGD: v ← momentum·v − Δ, w ← w − rate·v.
 */
export function hebbianStep(
  weight, velocity, initial, patterns,
  { rate, decay, momentum = 0, inhibition = Infinity, noise = null },
) {
  const inputs = patterns[0].length;
  const neurons = weight.length / inputs;
  const equalised = inhibition === Infinity ? 1 : inhibition / (1 + inhibition);
  const pull = new Float64Array(weight.length);
  const responses = new Float64Array(neurons);
  const seen = new Float64Array(weight.length); // each neuron's view of a pattern
  for (let p = 0; p < patterns.length; p++) {
    let mean = 0;
    for (let i = 0, n = 0; i < neurons; i++) {
      let response = 0;
      for (let j = 0; j < inputs; j++, n++) {
        seen[n] = patterns[p][j] + (noise ? noise[(i * patterns.length + p) * inputs + j] : 0);
        response += weight[n] * seen[n];
      }
      responses[i] = response;
      mean += response / neurons;
    }
    for (let i = 0, n = 0; i < neurons; i++) {
      const difference = (responses[i] - equalised * mean) / patterns.length;
      for (let j = 0; j < inputs; j++, n++) pull[n] += difference * seen[n];
    }
  }
  for (let n = 0; n < weight.length; n++) {
    velocity[n] = momentum * velocity[n] + pull[n] + decay * (weight[n] - initial[n]);
    weight[n] -= rate * velocity[n];
  }
  return weight;
}

/** Mean² over variance (Eq. 6), averaged over the weights and over grids of two or more neurons: `weight_snr`. */
export function weightSnr(weight, grids) {
  const inputs = weight.length / grids.length;
  const members = new Map();
  grids.forEach((grid, neuron) => members.set(grid, [...(members.get(grid) ?? []), neuron]));
  const ratios = [...members.values()].filter((neurons) => neurons.length > 1)
    .map((neurons) => snrOfGrid(weight, neurons, inputs));
  return ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
}

/** Differences are taken to the first neuron, so that equal weights have a variance of exactly zero. */
function snrOfGrid(weight, neurons, inputs) {
  let total = 0;
  for (let j = 0; j < inputs; j++) {
    const first = weight[neurons[0] * inputs + j];
    let sum = 0, squares = 0;
    for (const i of neurons) {
      const offset = weight[i * inputs + j] - first;
      sum += offset;
      squares += offset * offset;
    }
    const offset = sum / neurons.length;
    const variance = Math.max(squares / neurons.length - offset * offset, 0);
    total += variance === 0 ? Infinity : (first + offset) ** 2 / variance;
  }
  return total / inputs;
}

/** −log SNR of neurons that are all of one grid. */
export function negativeLogSnr(weight, neurons) {
  return -Math.log(snrOfGrid(weight, Array.from({ length: neurons }, (_, i) => i), weight.length / neurons));
}
