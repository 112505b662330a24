// Playback of the bot's speech, piece after piece, with its words. Never plays what is stale: speech that was dropped does not come
// back, none is taken while the player is held or its context stands still, and a closed player is silent for good. Owns its sources,
// not the context.

import { SpokenText } from "./spoken_text.js";

/** @import { Stretch } from "./spoken_text.js" */

const RATE_HZ = 24_000;
// Pause before the first piece of a stretch, so that the second one arrives in time.
const LEAD_S = 0.12;
// A server sends speech about as fast as it is spoken: more than this is no conversation.
const MOST_AHEAD_S = 60;
// Pieces are filled up with silence, in which no word sounds.
const AUDIBLE = 1e-4;

export class DuplexPlayer {
  /** Words of what is played. */
  spoken = new SpokenText();
  #context;
  #output;
  #next = 0;
  /** @type {Set<AudioBufferSourceNode>} */
  #sources = new Set();
  #isHeld = false;
  #isClosed = false;
  /** A context that was suspended goes on where it stopped, which may be minutes ago. */
  #onState = () => {
    if (this.#context.state !== "running") this.stop();
  };

  /**
   * @param {AudioContext} context
   * @param {AudioNode} [output] where the speech goes; without one it is heard
   */
  constructor(context, output = context.destination) {
    this.#context = context;
    this.#output = output;
    context.addEventListener("statechange", this.#onState);
  }

  /** Seconds of speech that are not heard yet. */
  get aheadS() {
    return Math.max(0, this.#next - this.#context.currentTime);
  }

  /** Time of the context that is heard at this moment. */
  get heardS() {
    return this.#context.currentTime - (this.#context.outputLatency || 0);
  }

  /**
   * Append samples at 24 kHz and their text; both are dropped while nothing may be heard.
   *
   * @param {Float32Array<ArrayBuffer>} samples
   * @param {string} [text]
   */
  play(samples, text = "") {
    const isLate = this.aheadS > MOST_AHEAD_S;
    if (isLate) this.stop();
    if (isLate || this.#isHeld || this.#isClosed || this.#context.state !== "running") this.skip(text);
    else this.spoken.say(text, samples.length ? this.#schedule(samples) : null);
  }

  /**
   * Note text whose speech is not played.
   *
   * @param {string} text
   */
  skip(text) {
    if (!text) return;
    this.spoken.say(text, null);
    this.spoken.cut(this.heardS);
  }

  /** Note that what follows belongs to another turn. */
  endTurn() {
    this.spoken.endTurn(this.heardS);
  }

  /** Drop everything that is not heard yet. */
  stop() {
    this.spoken.cut(this.heardS);
    for (const source of this.#sources) source.stop();
    this.#sources.clear();
    this.#next = 0;
  }

  /** Drop everything, and take nothing until it is released. */
  hold() {
    this.#isHeld = true;
    this.stop();
  }

  /** Take what comes from now on. */
  release() {
    this.#isHeld = false;
    this.endTurn();
  }

  /** Drop everything, and take nothing any more. */
  close() {
    this.#isClosed = true;
    this.#context.removeEventListener("statechange", this.#onState);
    this.stop();
    this.endTurn();
  }

  /**
   * @param {Float32Array<ArrayBuffer>} samples
   * @returns {Stretch} when it sounds
   */
  #schedule(samples) {
    const buffer = this.#context.createBuffer(1, samples.length, RATE_HZ);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#output);
    if (this.#next < this.#context.currentTime) this.#next = this.#context.currentTime + LEAD_S;
    const beginsS = this.#next;
    source.start(beginsS);
    this.#next += buffer.duration;
    this.#sources.add(source);
    source.addEventListener("ended", () => this.#sources.delete(source));
    const isAudible = (/** @type {number} */ sample) => Math.abs(sample) > AUDIBLE;
    const first = Math.max(0, samples.findIndex(isAudible));
    const last = samples.findLastIndex(isAudible) + 1 || samples.length;
    return { startS: beginsS + first / RATE_HZ, endS: beginsS + last / RATE_HZ };
  }
}
