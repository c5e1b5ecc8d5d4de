/** Train a network on digits at some places of the visual field, and test it at all. */
import { LABELS, PIXELS, TRAINING_DIGITS } from "./digits.js";
import { Network, PLACES } from "./network.js";
import { Random } from "./random.js";

export const TEST_DIGITS = LABELS.length - TRAINING_DIGITS;
export const EPOCHS = 10;
const BATCH = 16;
// Only some of the neurons of a grid see digits; the mean of all moves less than theirs, so that it needs a larger rate.
const RATES = { convolutional: 0.01, local: 0.01, sleeping: 0.03 };
const CLASSIFIER_RATE = 0.005;

/** Pixels from 0 to 1, one digit after another, with their labels; the training digits come first. */
export function loadDigits() {
  const bytes = atob(PIXELS);
  const pixels = new Float32Array(2 * bytes.length);
  for (let i = 0; i < bytes.length; i++) {
    pixels[2 * i] = (bytes.charCodeAt(i) >> 4) / 15;
    pixels[2 * i + 1] = (bytes.charCodeAt(i) & 15) / 15;
  }
  return { pixels, labels: Uint8Array.from(LABELS, Number) };
}

/**
 * Train a network step by step: after each batch, yield how far it is.
 * `places` are numbers row · columns + column of the digit's upper left corner.
 */
export function* training(kind, digits, places, { epochs = EPOCHS, seed = 0 } = {}) {
  const network = new Network(kind, { seed });
  const random = new Random(seed + 1);
  const order = Array.from({ length: TRAINING_DIGITS }, (_, i) => i);
  const steps = epochs * Math.ceil(TRAINING_DIGITS / BATCH);
  let step = 0;
  for (let epoch = 0; epoch < epochs; epoch++) {
    random.shuffle(order);
    for (let start = 0; start < order.length; start += BATCH) {
      const chosen = order.slice(start, start + BATCH);
      let loss = 0;
      for (const digit of chosen) {
        const place = places[random.below(places.length)];
        network.forward(digits.pixels, 64 * digit, Math.floor(place / PLACES.columns), place % PLACES.columns);
        loss += network.backward(digits.labels[digit]) / chosen.length;
      }
      const share = Math.min(1, 2 * (1 - step / steps)); // of the rates, which fall in the second half
      network.learn(chosen.length, { layers: share * RATES[kind], classifier: share * CLASSIFIER_RATE });
      step++;
      yield { network, step, steps, loss };
    }
  }
}

/** Count how many of the test digits from `first` to `end` are recognised at each place. */
export function recognised(network, digits, first, end) {
  const right = new Int32Array(PLACES.rows * PLACES.columns);
  for (let place = 0; place < right.length; place++) {
    for (let digit = TRAINING_DIGITS + first; digit < TRAINING_DIGITS + end; digit++) {
      const row = Math.floor(place / PLACES.columns);
      const scores = network.forward(digits.pixels, 64 * digit, row, place % PLACES.columns);
      let best = 0;
      for (let c = 1; c < scores.length; c++) if (scores[c] > scores[best]) best = c;
      if (best === digits.labels[digit]) right[place]++;
    }
  }
  return right;
}
