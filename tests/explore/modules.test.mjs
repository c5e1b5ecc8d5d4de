/** The page's modules agree with the package to 1e-6, on cases written by docs/tools/golden.py. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as circuit from "../../docs/explore/circuit.js";
import * as sharing from "../../docs/explore/sharing.js";
import * as theory from "../../docs/explore/theory.js";

const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url)));

function close(actual, expected, what) {
  assert.equal(actual.length, expected.length, what);
  for (let i = 0; i < expected.length; i++) {
    const difference = Math.abs(actual[i] - expected[i]);
    assert.ok(difference <= 1e-6 * Math.max(1, Math.abs(expected[i])), `${what}[${i}]: ${actual[i]}, not ${expected[i]}`);
  }
}

function each(name, check) {
  golden[name].forEach((one, index) => check(one, `${name} ${index}`));
}

test("grids are those of lateral_grids", () => {
  each("grids", (one, name) => {
    const { size, kernel: kernelSize, stride, dilation, period, grids } = one;
    assert.deepEqual([...sharing.lateralGrids(size, { kernelSize, stride, dilation, period })], grids, name);
  });
});

test("sharing is that of share_weights_", () => {
  each("sharing", ({ weight, grids, shared }, name) => close(sharing.shareWeights(weight, grids), shared, name));
});

test("the SNR is that of weight_snr, infinite where all agree", () => {
  each("snr", ({ weight, grids, snr }, name) => {
    const found = sharing.weightSnr(weight, grids);
    if (snr === "Infinity") assert.equal(found, Infinity, name);
    else close([found / snr], [1], name);
  });
});

test("Eq. 4 is that of hebbian_step_, with momentum, finite inhibition and noise", () => {
  each("hebbian", ({ weight, patterns, noise, options, after, velocity }, name) => {
    const found = Float64Array.from(weight), speed = new Float64Array(weight.length);
    patterns.forEach((shown, step) => {
      const inhibition = options.inhibition ?? Infinity;
      sharing.hebbianStep(found, speed, weight, shown, { ...options, inhibition, noise: noise && noise[step] });
    });
    close(found, after, name);
    close(speed, velocity, name);
  });
});

test("Eq. 5 is that of fixed_point, for any covariance", () => {
  each("fixed_point", ({ weight, neurons, covariance, decay, inhibition, settled, negative_log_snr: least }, name) => {
    const options = { covariance, decay, inhibition: inhibition ?? Infinity };
    close(theory.fixedPoint(weight, neurons, options), settled, name);
    close([theory.leastNegativeLogSnr(weight, neurons, options)], [least], name);
  });
});

test("without a covariance it is the identity", () => {
  const { weight, neurons, decay, settled } = golden.fixed_point[0];
  close(theory.fixedPoint(weight, neurons, { decay }), settled, "identity");
});

test("the noise floor is that of noisy_fixed_point", () => {
  each("noisy_fixed_point", ({ weight, neurons, covariance, decay, noise, settled }, name) => {
    close(theory.noisyFixedPoint(weight, neurons, { covariance, decay, noise }), settled, name);
  });
});

test("rates are those of euler_rates and settle at Eq. 9", () => {
  each("rates", ({ drive, constants, rates, inhibitory, settled }, name) => {
    const course = circuit.eulerRates(Float64Array.from(drive), { steps: 60, constants });
    rates.forEach((expected, i) => close(course.rates[20 * i], expected, name));
    inhibitory.forEach((expected, i) => close([course.inhibitory[20 * i]], [expected], name));
    close(circuit.rateFixedPoint(drive, constants), settled, name);
  });
});

test("presentations of the plastic circuit are those of present_", () => {
  each("presentations", ({ weight, patterns, decay, constants, ...expected }, name) => {
    const steps = constants.presentationMs / constants.stepMs;
    const state = circuit.circuitAtRest(weight, weight.length / patterns[0].length);
    patterns.forEach((pattern, p) => {
      const rates = Array.from({ length: steps }, (_, i) => circuit.circuitLearningRate(p * steps + i));
      const norm = pattern.reduce((sum, value) => sum + value * value, 0);
      circuit.present(state, pattern, circuit.presentationMaps(norm, rates, { decay, constants }));
    });
    close(circuit.circuitWeight(state), expected.after, name);
    close(state.velocity, expected.velocity, name);
    close(state.aboveBias, expected.above_bias, name);
    close([state.inhibitory], [expected.inhibitory], name);
  });
});
