// Follows a session: everything so far at once, then every event as it is committed, none twice. Decides when to look again
// after the stream ended, and what that means: the server is away, or the session is gone.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8_000;

export class Follower {
  #api;
  #on;
  #seq = null; // of the last event that was given
  #pauseMs = FIRST_PAUSE_MS;
  #source = null;
  #timer = 0;
  #attempt = 0;

  /**
   * @param {SessionApi} api
   * @param {object} on what the page wants to know
   * @param {(events: object[]) => void} on.past everything so far, in order of time; once, before anything else
   * @param {(event: object) => void} on.event a committed event
   * @param {() => void} on.up the server answers
   * @param {() => void} on.away the server does not answer; it is asked again
   * @param {() => void} on.gone there is no such session, or it is another client's; this is the end
   */
  constructor(api, on) {
    this.#api = api;
    this.#on = on;
    // A browser opens six connections to a server, for all its tabs: those that nobody looks at give theirs back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#pause() : this.start()));
  }

  /** Follows from where it was; harmless while it follows. */
  start() {
    if (this.#source || !this.#on) return;
    this.#pause();
    this.#connect();
  }

  /** The end. */
  stop() {
    this.#pause();
    this.#on = null;
  }

  #pause() {
    this.#attempt += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  async #connect() {
    const attempt = this.#attempt;
    let past = null;
    try {
      // An event stream of thousands is read several times slower than pages of them.
      if (this.#seq === null) past = await this.#api.past();
      else await this.#api.info();
    } catch (error) {
      if (attempt !== this.#attempt) return;
      if (error.gone || error.denied) {
        const { gone } = this.#on;
        this.stop();
        gone();
        return;
      }
      this.#on.away();
      this.#again();
      return;
    }
    if (attempt !== this.#attempt) return;
    if (past) {
      this.#seq = past.reduce((last, { seq }) => Math.max(last, seq), 0);
      this.#on.past(past);
    }
    this.#on.up();
    // The browser's own reconnecting would begin where the first address said.
    const source = this.#api.events(this.#seq);
    this.#source = source;
    source.addEventListener("open", () => {
      this.#pauseMs = FIRST_PAUSE_MS;
    });
    source.addEventListener("event", ({ data }) => {
      const event = JSON.parse(data);
      if (event.seq <= this.#seq) return;
      this.#seq = event.seq;
      this.#on.event(event);
    });
    source.addEventListener("error", () => {
      if (source !== this.#source) return;
      this.#pause();
      this.#again();
    });
  }

  #again() {
    this.#timer = setTimeout(() => this.#connect(), this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
  }
}
