/** Numbers drawn from a seed, so that a shared address shows the same thing to everyone. */
export class Random {
  constructor(seed) {
    this.state = seed >>> 0;
    this.spare = null;
  }

  /** A number from [0, 1): mulberry32. */
  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let bits = this.state;
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  }

  below(limit) {
    return Math.floor(this.uniform() * limit);
  }

  /** A number from N(0, 1): Marsaglia's polar method, which makes two at a time. */
  normal() {
    if (this.spare !== null) {
      const spare = this.spare;
      this.spare = null;
      return spare;
    }
    let x, y, square;
    do {
      x = 2 * this.uniform() - 1;
      y = 2 * this.uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square === 0);
    const scale = Math.sqrt((-2 * Math.log(square)) / square);
    this.spare = y * scale;
    return x * scale;
  }

  fillNormal(array, deviation = 1) {
    for (let i = 0; i < array.length; i++) array[i] = deviation * this.normal();
    return array;
  }

  shuffle(array) {
    for (let i = array.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [array[i], array[j]] = [array[j], array[i]];
    }
    return array;
  }
}
