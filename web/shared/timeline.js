// Timeline of a session for researchers: every event with all its fields, in order of event time. Read page by page when it is
// opened; once its end is shown, new events are inserted where their time puts them.

import { element, part } from "./element.js";
import { messageOf } from "./guards.js";
import { t } from "./language.js";
import { SessionApi } from "./session_api.js";

/** @import { SessionEvent } from "../types/server.js" */

const PAGE_EVENTS = 100;

export class Timeline {
  #api;
  #rows;
  #more;
  #notice;
  /** @type {SessionEvent[]} in the order in which they are shown */
  #shown = [];
  /** @type {Set<number>} their seq */
  #seen = new Set();
  #complete = false;
  #reading = false;
  /** @type {SessionEvent[]} those that came while a page was read */
  #meanwhile = [];

  /**
   * @param {SessionApi} api
   * @param {HTMLDetailsElement} fold contains the list, the button and the line for failures
   */
  constructor(api, fold) {
    this.#api = api;
    this.#rows = part("events", HTMLOListElement, fold);
    this.#more = part("more-events", HTMLButtonElement, fold);
    this.#notice = part("events-notice", HTMLParagraphElement, fold);
    this.#more.addEventListener("click", () => this.#read());
    fold.addEventListener("toggle", () => {
      if (fold.open && !this.#shown.length) this.#read();
    });
  }

  /**
   * Take a new event of the session.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    const last = this.#shown.at(-1);
    if (this.#reading) this.#meanwhile.push(event);
    // A late one may belong between those that are shown.
    else if (this.#complete || (last && isBehind(last, event))) this.#insert(event);
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (this.#complete && !this.#shown.length) this.#say(t("nothing_happened"));
  }

  async #read() {
    if (this.#reading) return;
    this.#reading = true;
    const last = this.#shown.at(-1);
    try {
      const page = await this.#api.timeline({ after: last ? SessionApi.placeBehind(last) : null, limit: PAGE_EVENTS });
      for (const event of page.events) this.#insert(event);
      this.#complete = page.after === null;
      this.#say(this.#shown.length ? "" : t("nothing_happened"));
    } catch (error) {
      this.#say(messageOf(error));
    } finally {
      this.#reading = false;
      for (const event of this.#meanwhile.splice(0)) this.take(event);
    }
    this.#more.hidden = this.#complete;
  }

  /** @param {SessionEvent} event */
  #insert(event) {
    if (this.#seen.has(event.seq)) return;
    this.#seen.add(event.seq);
    let at = this.#shown.length;
    while (at > 0 && isBehind(this.#shown[at - 1], event)) at -= 1;
    this.#rows.insertBefore(row(event), this.#rows.children[at] ?? null);
    this.#shown.splice(at, 0, event);
    this.#say("");
  }

  /** @param {string} text */
  #say(text) {
    this.#notice.textContent = text;
    this.#notice.hidden = !text;
  }
}

/**
 * @param {SessionEvent} one
 * @param {SessionEvent} other
 */
function isBehind(one, other) {
  return one.event_us > other.event_us || (one.event_us === other.event_us && one.seq > other.seq);
}

/** @param {SessionEvent} event */
function row(event) {
  const item = element("li");
  item.dataset.role = "event";
  item.dataset.seq = String(event.seq);
  const fold = element("details");
  const head = element("summary");
  const at = new Date(event.event_us / 1_000);
  const time = element("time", "", clock(at));
  time.dateTime = at.toISOString();
  const payload = JSON.stringify(event.payload);
  head.append(element("span", "seq", `#${event.seq}`), time, element("b", "", event.kind), element("code", "", payload));
  const { payload: said, ...rest } = event;
  fold.append(head, element("pre", "", JSON.stringify({ ...rest, payload: said }, null, 2)));
  item.append(fold);
  return item;
}

/** @param {Date} at */
function clock(at) {
  /** @type {(value: number, digits?: number) => string} */
  const padded = (value, digits = 2) => String(value).padStart(digits, "0");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map((value) => padded(value)).join(":");
  return `${time}.${padded(at.getMilliseconds(), 3)}`;
}
