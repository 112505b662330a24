// Following a session: everything so far at once, then every event as it is committed, none twice. Decides when to look again
// after the stream has ended, and what that means: the server is away, or the session is gone.

import { ApiError } from "./session_api.js";

/** @import { SessionEvent } from "../types/server.js" */
/** @import { SessionApi } from "./session_api.js" */

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8_000;

/**
 * @typedef {object} FollowerHandlers
 * @property {(events: SessionEvent[]) => void} past everything so far, in order of time; once, before anything else
 * @property {(event: SessionEvent) => void} event a committed event
 * @property {() => void} up the server answers
 * @property {() => void} away the server does not answer; the follower tries again
 * @property {() => void} gone there is no such session, or it belongs to another client; nothing follows
 */

export class Follower {
  #api;
  /** @type {FollowerHandlers | null} null once it is stopped */
  #on;
  /** @type {number | null} of the last event that was passed on */
  #seq = null;
  #pauseMs = FIRST_PAUSE_MS;
  /** @type {EventSource | null} */
  #source = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #attempt = 0;

  /**
   * @param {SessionApi} api
   * @param {FollowerHandlers} on
   */
  constructor(api, on) {
    this.#api = api;
    this.#on = on;
    // A browser opens six connections to a server, for all its tabs: hidden ones give theirs back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#pause() : this.start()));
  }

  /** Follow from the last event on. Safe to call twice. */
  start() {
    if (this.#source || !this.#on) return;
    this.#pause();
    this.#connect();
  }

  /** End following for good. */
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
    const on = this.#on;
    if (!on) return;
    /** @type {SessionEvent[] | null} */
    let past = null;
    try {
      // An event stream of thousands is read several times slower than pages of them.
      if (this.#seq === null) past = await this.#api.past();
      else await this.#api.info();
    } catch (error) {
      if (attempt !== this.#attempt) return;
      if (error instanceof ApiError && (error.gone || error.denied)) {
        this.stop();
        on.gone();
        return;
      }
      on.away();
      this.#again();
      return;
    }
    if (attempt !== this.#attempt) return;
    if (past) {
      this.#seq = past.reduce((last, { seq }) => Math.max(last, seq), 0);
      on.past(past);
    }
    on.up();
    // The browser's own reconnecting would begin where the first address begins.
    const source = this.#api.events(this.#seq ?? 0);
    this.#source = source;
    source.addEventListener("open", () => {
      this.#pauseMs = FIRST_PAUSE_MS;
    });
    source.addEventListener("event", ({ data }) => {
      /** @type {SessionEvent} */
      const event = JSON.parse(data);
      if (event.seq <= (this.#seq ?? 0)) return;
      this.#seq = event.seq;
      on.event(event);
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
