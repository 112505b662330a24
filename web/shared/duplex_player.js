// Playback of the bot's speech, piece after piece, which stops at once when the bot is interrupted. Owns its sources, not the
// context.

const RATE_HZ = 24_000;
// Pause before the first piece of a stretch, so that the second one arrives in time.
const LEAD_S = 0.12;

export class DuplexPlayer {
  #context;
  #next = 0;
  /** @type {Set<AudioBufferSourceNode>} */
  #sources = new Set();

  /** @param {AudioContext} context */
  constructor(context) {
    this.#context = context;
  }

  /** Seconds of speech that are not heard yet. */
  get aheadS() {
    return Math.max(0, this.#next - this.#context.currentTime);
  }

  /**
   * Append samples at 24 kHz.
   *
   * @param {Float32Array<ArrayBuffer>} samples
   */
  play(samples) {
    if (!samples.length) return;
    const buffer = this.#context.createBuffer(1, samples.length, RATE_HZ);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    if (this.#next < this.#context.currentTime) this.#next = this.#context.currentTime + LEAD_S;
    source.start(this.#next);
    this.#next += buffer.duration;
    this.#sources.add(source);
    source.addEventListener("ended", () => this.#sources.delete(source));
  }

  /** Drop everything that is not heard yet. */
  stop() {
    for (const source of this.#sources) source.stop();
    this.#sources.clear();
    this.#next = 0;
  }
}
