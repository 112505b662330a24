// The time between two voices, to the sample: from the last audible sample of the caller to the first audible one of the bot. The
// rule of what is audible is that of the server (audio/audible.py), so that both measure the same edges.

const WINDOW_S = 0.01;
const MIN_RUN_S = 0.02;
export const AMPLITUDE = 10 ** (-45 / 20);
// A longer wait is no answer to what was said.
const LONGEST_S = 30;

/** Audible edges of a stream that arrives in pieces. */
export class AudibleMeter {
  #window;
  #minRun;
  #recent;
  #energy = 0;
  #seen = 0;
  #run = 0;
  #first = -1; // edges of the sound in the present run
  #last = -1;
  /** Position of the first sample of the newest audible stretch; -1 without any. */
  began = -1;
  /** Position of the last audible sample so far; -1 without any. */
  ended = -1;

  /** @param {number} rate_hz */
  constructor(rate_hz) {
    this.#window = Math.floor(rate_hz * WINDOW_S);
    this.#minRun = Math.floor(rate_hz * MIN_RUN_S);
    this.#recent = new Float32Array(this.#window);
  }

  /** True while a stretch of loud windows lasts that is long enough. */
  get sounding() {
    return this.#run >= this.#minRun;
  }

  /**
   * Take the next piece; return true if an audible stretch has begun in it.
   *
   * @param {Float32Array | undefined} samples undefined for silence, of `length`
   * @param {number} length
   */
  feed(samples, length) {
    let begins = false;
    const loud = AMPLITUDE ** 2 * this.#window;
    for (let at = 0; at < length; at += 1) {
      const sample = samples ? samples[at] : 0;
      const place = this.#seen % this.#window;
      const gone = this.#recent[place];
      this.#recent[place] = sample;
      this.#energy = Math.max(0, this.#energy + sample * sample - gone * gone);
      this.#seen += 1;
      if (this.#energy < loud) {
        this.#run = 0;
        continue;
      }
      if (this.#run === 0) this.#first = this.#edge();
      this.#run += 1;
      if (Math.abs(sample) >= AMPLITUDE) this.#last = this.#seen - 1;
      if (this.#run < this.#minRun) continue;
      if (this.#run === this.#minRun) {
        begins = true;
        this.began = this.#first;
      }
      this.ended = Math.max(this.ended, this.#last);
    }
    return begins;
  }

  /** Return the first sample of the present window that itself reaches the threshold, and note the last one. */
  #edge() {
    let first = -1;
    for (let back = Math.min(this.#window, this.#seen); back > 0; back -= 1) {
      const position = this.#seen - back;
      if (Math.abs(this.#recent[position % this.#window]) < AMPLITUDE) continue;
      if (first < 0) first = position;
      this.#last = position;
    }
    return first;
  }
}

/** Gaps between the caller's voice and the bot's, in two streams of one clock. */
export class VoiceGap {
  #rate_hz;
  #caller;
  #bot;
  #reported = -1; // end of the caller's voice that was reported last

  /** @param {number} rate_hz */
  constructor(rate_hz) {
    this.#rate_hz = rate_hz;
    this.#caller = new AudibleMeter(rate_hz);
    this.#bot = new AudibleMeter(rate_hz);
  }

  /**
   * Take the next pieces of both; return the gap in milliseconds when the bot begins to answer, or null.
   *
   * @param {Float32Array | undefined} caller
   * @param {Float32Array | undefined} bot
   * @param {number} length
   */
  feed(caller, bot, length) {
    this.#caller.feed(caller, length);
    if (!this.#bot.feed(bot, length)) return null;
    const from = this.#caller.ended;
    const gap = this.#bot.began - from;
    // Over each other, or a second sentence: no answer that was waited for.
    if (from < 0 || from === this.#reported || gap <= 0 || gap > LONGEST_S * this.#rate_hz) return null;
    this.#reported = from;
    return (1_000 * gap) / this.#rate_hz;
  }
}
