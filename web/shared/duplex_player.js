// What the bot says, back to back, and silent at once when it falls silent. Owns its sources, not the context.

const RATE_HZ = 24_000;
// In front of the first sound of a stretch, so that the next one is there in time.
const LEAD_S = 0.12;

export class DuplexPlayer {
  #context;
  #next = 0;
  #sources = new Set();

  constructor(context) {
    this.#context = context;
  }

  /** Seconds that wait to be heard. */
  get aheadS() {
    return Math.max(0, this.#next - this.#context.currentTime);
  }

  /** More of it: float32 at 24 kHz. */
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

  /** Drops what is not heard yet. */
  stop() {
    for (const source of this.#sources) source.stop();
    this.#sources.clear();
    this.#next = 0;
  }
}
