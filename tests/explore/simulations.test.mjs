/** What the page simulates does what its text says. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { Neurons } from "../../docs/explore/neurons.js";
import { lateralGrids } from "../../docs/explore/sharing.js";
import { CircuitNight } from "../../docs/explore/view-circuit.js";
import { litTap } from "../../docs/explore/view-grids.js";

const PAPER = { rule: "hebbian", gamma: 0.01, sigma: 0, rate: 5e-4, momentum: 0.95 };

function afterNight(neurons, options, steps = 2000) {
  neurons.fallAsleep();
  neurons.pullTogether(options, steps);
  return neurons;
}

test("asleep, neurons come down to the floor of Eq. 5, and awake they drift apart again", () => {
  const neurons = afterNight(new Neurons(40, 3), PAPER);
  const asleep = neurons.negativeLogSnr;
  assert.ok(Math.abs(asleep - neurons.floors(PAPER).exact) < 0.3, `${asleep}`);
  neurons.wakeUp();
  for (let step = 0; step < 400; step++) neurons.learnApart();
  assert.ok(neurons.negativeLogSnr > asleep + 5);
});

test("instant sharing leaves no difference", () => {
  assert.equal(afterNight(new Neurons(10, 3), { ...PAPER, rule: "instant" }, 1).negativeLogSnr, -Infinity);
});

test("noise shrinks the mean, more of it if there is more noise", () => {
  const left = (sigma) => afterNight(new Neurons(40, 3), { ...PAPER, sigma }).meanLeft;
  const [none, some, much] = [0, 0.1, 0.3].map(left);
  assert.ok(Math.abs(none - 1) < 1e-9);
  assert.ok(some < none && much < some);
});

test("the floor under noise is higher than that of Eq. 5", () => {
  const neurons = new Neurons(40, 3);
  const { exact, noisy } = neurons.floors({ gamma: 0.01, sigma: 0.1 });
  assert.ok(noisy > exact + 1);
});

test("a circuit with α = 10 is best near 2,000 presentations, loses more of the mean after it, and can go back", () => {
  const night = new CircuitNight({ inhibition: 10, tauMs: 30, bias: 1 });
  while (night.presentations < 5000) {
    for (let i = 0; i < 20; i++) night.present();
    night.sample();
  }
  assert.ok(night.best.presentations > 1000 && night.best.presentations < 3000);
  assert.ok(night.pastBest);
  assert.ok(night.history.at(-1).snr > night.best.snr + 0.2);
  const lost = night.history.at(-1).lost;
  night.rewind();
  assert.equal(night.presentations, night.best.presentations);
  assert.ok(night.history.at(-1).lost < lost);
});

test("all neurons of a grid see a lit input grid at one place of their filters, and all grids light every place", () => {
  for (const [k, stride] of [[3, 1], [3, 2], [4, 2], [5, 3]]) {
    const columns = 7;
    const grids = lateralGrids([5, columns], { kernelSize: k, stride });
    const taps = new Map();
    for (let lit = 0; lit < k * k; lit++) {
      const seen = new Map();
      grids.forEach((grid, n) => {
        const tap = litTap({ k, stride, columns, lit }, n).join();
        assert.equal(seen.get(grid) ?? tap, tap);
        seen.set(grid, tap);
        taps.set(grid, (taps.get(grid) ?? new Set()).add(tap));
      });
    }
    for (const all of taps.values()) assert.equal(all.size, k * k);
  }
});
