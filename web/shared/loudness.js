// Loudness of one channel by ITU-R BS.1770-4, in LUFS: K-weighting, and the mean square of blocks of 400 ms that overlap by 75 %.
// Pure: samples in, figures out. What is kept does not grow with the length of a call.

const HOP_S = 0.1;
const HOPS = 4; // of a block
const OFFSET_DB = -0.691;
// Gates of the integrated loudness (annex 1, section 5).
const ABSOLUTE_LUFS = -70;
const RELATIVE_LU = -10;
// The blocks are kept as a histogram: their energies are summed exactly, and only the place of the relative gate is rounded.
const BIN_LU = 0.05;
const BINS = Math.round((10 - ABSOLUTE_LUFS) / BIN_LU);
// Rate for which the standard has the coefficients of its filters.
const STANDARD_HZ = 48_000;
// What a filter remembers of a sound that ended long ago costs time, as a number with few digits left.
const NOTHING = 1e-20;

/** @typedef {{ b: number[], a: number[] }} Coefficients of a filter of second order, a[0] is 1 */

/**
 * Return the filters of the K-weighting at a rate. The standard has them for 48 kHz only: these are the analogue filters of which
 * those are the bilinear transforms.
 *
 * @param {number} rate_hz
 * @returns {Coefficients[]}
 */
export function weighting(rate_hz) {
  return [shelf(rate_hz), highPass(rate_hz)];
}

/** @param {number} rate_hz */
function shelf(rate_hz) {
  const k = Math.tan((Math.PI * 1_681.974450955533) / rate_hz);
  const q = 0.7071752369554196;
  const high = 10 ** (3.999843853973347 / 20);
  const band = high ** 0.4996667741545416;
  const scale = 1 + k / q + k * k;
  return {
    b: [high + (band * k) / q + k * k, 2 * (k * k - high), high - (band * k) / q + k * k].map((each) => each / scale),
    a: [1, (2 * (k * k - 1)) / scale, (1 - k / q + k * k) / scale],
  };
}

/** @param {number} rate_hz */
function highPass(rate_hz) {
  const q = 0.5003270373238773;
  /** @param {number} rate */
  const terms = (rate) => {
    const k = Math.tan((Math.PI * 38.13547087602444) / rate);
    return { k, scale: 1 + k / q + k * k };
  };
  const { k, scale } = terms(rate_hz);
  // The standard writes 1, -2, 1 without its scale, so that high frequencies gain 0.04 dB at 48 kHz, and here at every rate.
  const gain = terms(STANDARD_HZ).scale / scale;
  return {
    b: [gain, -2 * gain, gain],
    a: [1, (2 * (k * k - 1)) / scale, (1 - k / q + k * k) / scale],
  };
}

/** Filter of second order (transposed direct form II). */
class Biquad {
  #b;
  #a;
  #first = 0;
  #second = 0;

  /** @param {Coefficients} coefficients */
  constructor({ b, a }) {
    this.#b = b;
    this.#a = a;
  }

  /** @param {number} sample */
  next(sample) {
    const out = this.#b[0] * sample + this.#first;
    this.#first = this.#b[1] * sample - this.#a[1] * out + this.#second;
    this.#second = this.#b[2] * sample - this.#a[2] * out;
    return out;
  }

  /** Forget what is too small to matter. */
  rest() {
    if (Math.abs(this.#first) < NOTHING) this.#first = 0;
    if (Math.abs(this.#second) < NOTHING) this.#second = 0;
  }
}

/** Loudness of a channel that arrives in pieces. */
export class LoudnessMeter {
  #filters;
  #hop; // in samples
  #energy = 0; // of the present hop
  #filled = 0;
  /** @type {number[]} mean squares of the last hops, the oldest first */
  #hops = [];
  #counts = new Float64Array(BINS);
  #sums = new Float64Array(BINS);
  /** Loudness of the last 400 ms in LUFS; -Infinity before there are any, and for digital silence. */
  momentary = -Infinity;

  /** @param {number} rate_hz */
  constructor(rate_hz) {
    this.#filters = weighting(rate_hz).map((each) => new Biquad(each));
    this.#hop = Math.round(rate_hz * HOP_S);
  }

  /**
   * Take the next piece; return true if a block has ended in it.
   *
   * @param {Float32Array | undefined} samples undefined for silence, of `length`
   * @param {number} length
   */
  feed(samples, length) {
    const [shelving, passing] = this.#filters;
    let ended = false;
    for (let at = 0; at < length; at += 1) {
      const weighted = passing.next(shelving.next(samples ? samples[at] : 0));
      this.#energy += weighted * weighted;
      this.#filled += 1;
      if (this.#filled === this.#hop) ended = this.#endHop() || ended;
    }
    return ended;
  }

  /** Loudness of all blocks that pass both gates, in LUFS; -Infinity while none does. */
  get integrated() {
    const all = this.#mean(0);
    if (!all) return -Infinity;
    // Blocks below the absolute gate are not in the histogram.
    const gate = Math.max(ABSOLUTE_LUFS, loudness(all) + RELATIVE_LU);
    return loudness(this.#mean(Math.round((gate - ABSOLUTE_LUFS) / BIN_LU)));
  }

  #endHop() {
    this.#hops.push(this.#energy / this.#hop);
    this.#energy = this.#filled = 0;
    for (const filter of this.#filters) filter.rest();
    if (this.#hops.length < HOPS) return false;
    const block = this.#hops.reduce((sum, each) => sum + each, 0) / HOPS;
    this.#hops.shift();
    this.momentary = loudness(block);
    if (this.momentary > ABSOLUTE_LUFS) {
      const bin = Math.min(BINS - 1, Math.floor((this.momentary - ABSOLUTE_LUFS) / BIN_LU));
      this.#counts[bin] += 1;
      this.#sums[bin] += block;
    }
    return true;
  }

  /** @param {number} from first bin that counts */
  #mean(from) {
    let [count, sum] = [0, 0];
    for (let bin = from; bin < BINS; bin += 1) {
      count += this.#counts[bin];
      sum += this.#sums[bin];
    }
    return count ? sum / count : 0;
  }
}

/** @param {number} meanSquare of K-weighted samples */
function loudness(meanSquare) {
  return OFFSET_DB + 10 * Math.log10(meanSquare);
}
