// The timeline of a session for researchers: every event with all that it says, in order of event time. Read page by page when
// it is opened; once its end is shown, new events join where their time puts them.

import { element } from "./element.js";
import { SessionApi } from "./session_api.js";

const PAGE_EVENTS = 100;

export class Timeline {
  #api;
  #fold;
  #rows;
  #more;
  #notice;
  #shown = []; // events, as shown
  #seen = new Set(); // their seq
  #complete = false;
  #reading = false;
  #meanwhile = []; // events that came while a page was read

  /** @param {HTMLDetailsElement} fold with the list, the button and the line for failures in it */
  constructor(api, fold) {
    this.#api = api;
    this.#fold = fold;
    this.#rows = fold.querySelector('[data-role="events"]');
    this.#more = fold.querySelector('[data-role="more-events"]');
    this.#notice = fold.querySelector('[data-role="events-notice"]');
    this.#more.addEventListener("click", () => this.#read());
    fold.addEventListener("toggle", () => {
      if (fold.open && !this.#shown.length) this.#read();
    });
  }

  /** A new event of the session. */
  take(event) {
    const last = this.#shown.at(-1);
    if (this.#reading) this.#meanwhile.push(event);
    // A late one may belong between those that are shown.
    else if (this.#complete || (last && isBehind(last, event))) this.#insert(event);
  }

  async #read() {
    if (this.#reading) return;
    this.#reading = true;
    const last = this.#shown.at(-1);
    try {
      const page = await this.#api.timeline({ after: last && SessionApi.placeBehind(last), limit: PAGE_EVENTS });
      for (const event of page.events) this.#insert(event);
      this.#complete = page.after === null;
      this.#say(this.#shown.length ? "" : "Nothing has happened yet.");
    } catch (error) {
      this.#say(error.message);
    } finally {
      this.#reading = false;
      for (const event of this.#meanwhile.splice(0)) this.take(event);
    }
    this.#more.hidden = this.#complete;
  }

  #insert(event) {
    if (this.#seen.has(event.seq)) return;
    this.#seen.add(event.seq);
    let at = this.#shown.length;
    while (at > 0 && isBehind(this.#shown[at - 1], event)) at -= 1;
    this.#rows.insertBefore(row(event), this.#rows.children[at] ?? null);
    this.#shown.splice(at, 0, event);
    this.#say("");
  }

  #say(text) {
    this.#notice.textContent = text;
    this.#notice.hidden = !text;
  }
}

function isBehind(one, other) {
  return one.event_us > other.event_us || (one.event_us === other.event_us && one.seq > other.seq);
}

function row(event) {
  const item = element("li");
  item.dataset.role = "event";
  item.dataset.seq = event.seq;
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

function clock(at) {
  const padded = (value, digits = 2) => String(value).padStart(digits, "0");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map((value) => padded(value)).join(":");
  return `${time}.${padded(at.getMilliseconds(), 3)}`;
}
