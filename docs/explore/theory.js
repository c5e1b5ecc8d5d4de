/** Where the weights end up, and how well they then share: the page's twin of `sleepconv.simulation.theory`. */
import { negativeLogSnr } from "./sharing.js";

/**
 * Where Eq. 4 converges (Eq. 5): wᵢ* = (C + γI)⁻¹ (C μ^init + γ wᵢ^init); with finite inhibition the appendix's biased
 * form, in which the mean shrinks. C is the identity if none is given: `fixed_point`.
 */
export function fixedPoint(initial, neurons, { covariance = null, decay, inhibition = Infinity }) {
  return settled(initial, neurons, covariance, (weight, mean, variance) => {
    const left = inhibition === Infinity
      ? 1
      : (inhibition / (1 + inhibition)) * kept(decay, variance / (1 + inhibition));
    const own = kept(decay, variance);
    return (1 - own) * left * mean + own * weight;
  });
}

/** Where the mean dynamics end if every neuron's inputs have noise of variance σ² (the theorem): `noisy_fixed_point`. */
export function noisyFixedPoint(initial, neurons, { covariance = null, decay, noise }) {
  const pull = noise ** 2 * (1 - 1 / neurons);
  const left = survivingMean({ decay, noise, neurons });
  return settled(initial, neurons, covariance, (weight, mean, variance) =>
    (variance * left * mean + decay * weight) / (variance + decay + pull));
}

/** The share of the mean weight that noise leaves: γ / (γ + σ²(1 − 1/N)). */
export function survivingMean({ decay, noise, neurons }) {
  return kept(decay, noise ** 2 * (1 - 1 / neurons));
}

/** −log SNR at the fixed point: `least_negative_log_snr`. */
export function leastNegativeLogSnr(initial, neurons, options) {
  return negativeLogSnr(fixedPoint(initial, neurons, options), neurons);
}

/** γ / (γ + variance), and 1 where both are zero: without inputs nothing moves. */
function kept(decay, variance) {
  return decay + variance > 0 ? decay / (decay + variance) : 1;
}

/** Apply `settle(weight, mean over neurons, variance)` along every principal direction of the inputs. */
function settled(initial, neurons, covariance, settle) {
  const inputs = initial.length / neurons;
  const { values, vectors } = covariance ? symmetricEigen(covariance, inputs) : { values: null, vectors: null };
  const turned = vectors ? product(initial, vectors, neurons, inputs) : initial;
  const end = new Float64Array(initial.length);
  for (let j = 0; j < inputs; j++) {
    let mean = 0;
    for (let i = 0; i < neurons; i++) mean += turned[i * inputs + j] / neurons;
    const variance = values ? Math.max(values[j], 0) : 1;
    for (let i = 0; i < neurons; i++) end[i * inputs + j] = settle(turned[i * inputs + j], mean, variance);
  }
  return vectors ? product(end, transposed(vectors, inputs), neurons, inputs) : end;
}

/** Eigenvalues and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations. */
export function symmetricEigen(matrix, size) {
  const a = Float64Array.from(matrix);
  const vectors = Float64Array.from({ length: size * size }, (_, n) => (n % (size + 1) === 0 ? 1 : 0));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) off += a[p * size + q] ** 2;
    if (off < 1e-28) break;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) rotate(a, vectors, size, p, q);
  }
  return { values: Float64Array.from({ length: size }, (_, i) => a[i * (size + 1)]), vectors };
}

function rotate(a, vectors, size, p, q) {
  const apq = a[p * size + q];
  if (apq === 0) return;
  const theta = (a[q * size + q] - a[p * size + p]) / (2 * apq);
  const tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const cosine = 1 / Math.sqrt(tangent * tangent + 1);
  const sine = tangent * cosine;
  const mix = (array, first, second) => {
    const [x, y] = [array[first], array[second]];
    array[first] = cosine * x - sine * y;
    array[second] = sine * x + cosine * y;
  };
  for (let k = 0; k < size; k++) mix(a, k * size + p, k * size + q);
  for (let k = 0; k < size; k++) mix(a, p * size + k, q * size + k);
  for (let k = 0; k < size; k++) mix(vectors, k * size + p, k * size + q);
}

function transposed(matrix, size) {
  return Float64Array.from(matrix, (_, n) => matrix[(n % size) * size + Math.floor(n / size)]);
}

function product(rows, matrix, count, size) {
  const out = new Float64Array(count * size);
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < size; k++) {
      const value = rows[i * size + k];
      for (let j = 0; j < size; j++) out[i * size + j] += value * matrix[k * size + j];
    }
  }
  return out;
}
