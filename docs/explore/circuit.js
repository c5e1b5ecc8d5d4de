/** Excitatory neurons and an inhibitory one (Eq. 8): the page's twin of `sleepconv.simulation.circuit`. */

export const CONSTANTS = { inhibition: 10, tauMs: 30, bias: 1, stepMs: 1, presentationMs: 150, momentum: 0.95 };

/** The rates at which the circuit settles (Eq. 9) for the drive wᵢᵀx: `rate_fixed_point`. */
export function rateFixedPoint(drive, { inhibition, bias }) {
  const mean = drive.reduce((sum, value) => sum + value, 0) / drive.length;
  return drive.map((value) => bias + value - (inhibition / (1 + inhibition)) * mean);
}

/** Follow Eq. 8 from rest with the weights held still; the first entry is the start: `euler_rates`. */
export function eulerRates(drive, { steps, constants = CONSTANTS }) {
  const fraction = constants.stepMs / constants.tauMs;
  let above = new Float64Array(drive.length);
  let inhibitory = 0;
  const course = { rates: [above.map((rate) => rate + constants.bias)], inhibitory: [0] };
  for (let step = 0; step < steps; step++) {
    const mean = above.reduce((sum, rate) => sum + rate, 0) / above.length;
    above = above.map((rate, i) => rate + fraction * (drive[i] - rate - constants.inhibition * inhibitory));
    inhibitory += fraction * (mean - inhibitory);
    course.rates.push(above.map((rate) => rate + constants.bias));
    course.inhibitory.push(inhibitory);
  }
  return course;
}

/** The learning rate after t Euler steps: 0.0003 / √(1 + t/2), from t > 50 on. */
export function circuitLearningRate(t, start = 0.0003) {
  return t > 50 ? start / Math.sqrt(1 + t / 2) : 0;
}

/** What a circuit carries from one presentation to the next; its weights are initial + displacement. */
export function circuitAtRest(weight, neurons) {
  return {
    initial: Float64Array.from(weight),
    displacement: new Float64Array(weight.length),
    velocity: new Float64Array(weight.length),
    aboveBias: new Float64Array(neurons),
    inhibitory: 0,
  };
}

export function circuitWeight(state) {
  return state.initial.map((value, n) => value + state.displacement[n]);
}

/**
 * Condense the Euler steps of a presentation into small matrices: `presentation_maps`.
 *
 * While x is shown, all motion of the weights lies along x, along their distance D from the start and along the momentum
 * V, so each step acts on a few numbers per neuron: (r − b, r_inh, D·x, V·x, w^init·x). The first matrix of `motion`
 * holds for each neuron's difference from the mean, the second for the mean; `carry` says how D and V mix besides.
 */
export function presentationMaps(squaredNorm, learningRates, { decay, constants = CONSTANTS }) {
  const fraction = constants.stepMs / constants.tauMs;
  const columns = [0, 1].flatMap((kind) => [0, 1, 2, 3, 4].map((column) => ({
    column,
    inhibition: kind === 0 ? 0 : constants.inhibition,
    above: column === 0 ? 1 : 0,
    inhibitory: column === 1 ? 1 : 0,
    weight: 0,
    velocity: 0,
  })));
  const carry = [[1, 0], [0, 1]];
  for (const rate of learningRates) {
    const external = [0, 0, carry[0][0], carry[0][1], 1];
    for (const c of columns) {
      const drive = c.weight * squaredNorm + external[c.column] - c.above - c.inhibition * c.inhibitory;
      c.velocity = constants.momentum * c.velocity + c.above + decay * c.weight;
      c.weight -= rate * c.velocity;
      c.inhibitory += fraction * (c.above - c.inhibitory);
      c.above += fraction * drive;
    }
    for (const m of [0, 1]) {
      carry[1][m] = constants.momentum * carry[1][m] + decay * carry[0][m];
      carry[0][m] -= rate * carry[1][m];
    }
  }
  const motion = [columns.slice(0, 5), columns.slice(5)].map((five) =>
    ["above", "inhibitory", "weight", "velocity"].map((name) => five.map((column) => column[name])));
  return { motion, carry };
}

/** Show the circuit one input for one presentation, in place: `present_`. */
export function present(state, pattern, { motion, carry }) {
  const inputs = pattern.length;
  const neurons = state.aboveBias.length;
  const values = [0, 1, 2, 3].map(() => new Float64Array(neurons)); // r − b, D·x, V·x, w^init·x
  for (let i = 0; i < neurons; i++) {
    let displaced = 0, moving = 0, driven = 0;
    for (let j = 0, n = i * inputs; j < inputs; j++, n++) {
      displaced += state.displacement[n] * pattern[j];
      moving += state.velocity[n] * pattern[j];
      driven += state.initial[n] * pattern[j];
    }
    values[0][i] = state.aboveBias[i];
    values[1][i] = displaced;
    values[2][i] = moving;
    values[3][i] = driven;
  }
  const means = values.map((each) => each.reduce((sum, value) => sum + value, 0) / neurons);
  const apply = (row, a, inhibitory, d, v, w) => row[0] * a + row[1] * inhibitory + row[2] * d + row[3] * v + row[4] * w;
  const [ofMean, ofDifference] = [motion[1], motion[0]];
  const together = ofMean.map((row) => apply(row, means[0], state.inhibitory, means[1], means[2], means[3]));
  state.inhibitory = together[1];
  for (let i = 0; i < neurons; i++) {
    const own = values.map((each, n) => each[i] - means[n]);
    const moved = (which) => together[which] + apply(ofDifference[which], own[0], 0, own[1], own[2], own[3]);
    state.aboveBias[i] = moved(0);
    const along = moved(2), velocityAlong = moved(3);
    for (let j = 0, n = i * inputs; j < inputs; j++, n++) {
      const displacement = state.displacement[n], velocity = state.velocity[n];
      state.displacement[n] = carry[0][0] * displacement + carry[0][1] * velocity + along * pattern[j];
      state.velocity[n] = carry[1][1] * velocity + carry[1][0] * displacement + velocityAlong * pattern[j];
    }
  }
  return state;
}
