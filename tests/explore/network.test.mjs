/** The network that the page trains: its gradient, its grids, and what it learns. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { KINDS, Network, PLACES } from "../../docs/explore/network.js";
import { loadDigits, recognised, training } from "../../docs/explore/training.js";

const digits = loadDigits();
const left = Array.from({ length: 25 }, (_, i) => Math.floor(i / 5) * PLACES.columns + (i % 5));

test("the embedded digits have a hundred or more of each class", () => {
  assert.equal(digits.labels.length, 1797);
  assert.equal(digits.pixels.length, 64 * 1797);
  for (let c = 0; c < 10; c++) assert.ok(digits.labels.filter((label) => label === c).length > 100);
  assert.ok(digits.pixels.every((pixel) => pixel >= 0 && pixel <= 1));
});

test("gradients are those of finite differences", () => {
  for (const kind of KINDS) {
    const network = new Network(kind, { width: 4, seed: 3 });
    network.forward(digits.pixels, 0, 2, 7);
    network.backward(5);
    const parameters = [...network.layers.map((layer) => layer.weight), network.classifier];
    const slopes = parameters.map(({ value, gradient }) => ({ value, gradient: gradient.slice() }));
    for (const { value, gradient } of slopes) {
      const steepest = gradient.reduce((best, slope, n) => (Math.abs(slope) > Math.abs(gradient[best]) ? n : best), 0);
      const slope = gradient[steepest], start = value[steepest];
      const loss = (shift) => {
        value[steepest] = start + shift;
        network.forward(digits.pixels, 0, 2, 7);
        return network.backward(5);
      };
      const found = (loss(1e-3) - loss(-1e-3)) / 2e-3;
      value[steepest] = start;
      assert.ok(Math.abs(found - slope) < 0.02 * Math.abs(slope), `${kind}: ${found}, not ${slope}`);
    }
  }
});

test("a sleeping network answers alike to digits twelve pixels apart, a local one does not", () => {
  const answers = (kind) => {
    const network = new Network(kind, { seed: 1 });
    return [2, 14].map((column) => [...network.forward(digits.pixels, 640, 2, column)]);
  };
  const apart = ([a, b]) => Math.max(...a.map((value, i) => Math.abs(value - b[i])));
  assert.ok(apart(answers("sleeping")) < 1e-5);
  assert.ok(apart(answers("local")) > 1e-2);
});

test("after two epochs what was learned on the left is known twelve pixels further, if the network slept", () => {
  const accuracy = (kind, columns) => {
    let last;
    for (last of training(kind, digits, left, { epochs: 2 }));
    const right = recognised(last.network, digits, 0, 20);
    const places = columns.flatMap((column) => [0, 1, 2, 3, 4].map((row) => row * PLACES.columns + column));
    return places.reduce((sum, place) => sum + right[place], 0) / (20 * places.length);
  };
  assert.ok(accuracy("sleeping", [12, 13, 14]) > 0.4);
  assert.ok(accuracy("local", [12, 13, 14]) < 0.3);
});
