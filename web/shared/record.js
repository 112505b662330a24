// The record of a session as bubbles, in the order in which things happened, whichever transport they came by. Takes committed
// events, and what this page is saying at the moment; an event that says what is shown already settles it instead of showing
// it twice. What was said is known by its key, a reply by its reply id.

import { element } from "./element.js";

const TRANSPORTS = {
  text: "",
  webrtc: "voice",
  local: "voice",
  eval: "voice",
  file: "recording",
  twilio: "phone",
  telephony: "phone",
};
// What is not committed yet comes behind everything that is.
const PENDING = { us: Infinity, seq: Infinity };
// A page of thousands of bubbles is laid out for seconds: the end of the record is shown, more of it on demand.
const SHOW_FIRST = 100;
const KEEP_SHOWN = 400;
const TURNS = new Set(["user_turn", "bot_turn"]);

/** The end of a list of events that holds so many turns. */
export function lastTurns(events, count) {
  let from = events.length;
  for (let turns = 0; from > 0 && turns < count; from -= 1) {
    if (TURNS.has(events[from - 1].kind)) turns += 1;
  }
  return events.slice(from);
}

export class SessionRecord {
  #bubbles;
  #entries = []; // in order of time
  #hidden = 0; // so many of the first ones are not shown
  #filling = false;
  #known = new Map(); // by key or reply id

  constructor(bubbles) {
    this.#bubbles = bubbles;
  }

  /** While everything that was said so far is taken in, nothing is shown. */
  fill(filling) {
    this.#filling = filling;
    if (!filling) this.showEarlier();
    this.#bubbles.fill(filling);
  }

  /** Whether there is more than what is shown. */
  get hasEarlier() {
    return this.#hidden > 0;
  }

  /** Shows more of what came before. */
  showEarlier() {
    const from = Math.max(0, this.#hidden - SHOW_FIRST);
    const items = this.#entries.slice(from, this.#hidden).map(({ item }) => item);
    this.#hidden = from;
    this.#bubbles.prepend(items);
  }

  /** Shows a committed event, if it is about what was said. */
  take(event) {
    const { kind, key, payload } = event;
    const place = { us: event.event_us, seq: event.seq };
    const handlers = {
      user_turn: () => this.#userTurn(key, payload, place),
      heard: () => this.#heard(payload, place),
      bot_turn: () => this.#botTurn(payload, place),
      joined: () => this.#note(key, `${callOf(payload.transport)} began`, place),
      left: () => this.#note(key, `${callOf(payload.transport)} ended`, place),
    };
    handlers[kind]?.();
  }

  /** The person says something here, for the first time or again. */
  ask(key, text) {
    const begun = this.#known.get(replyTo(key));
    if (begun?.streamed) {
      this.#known.delete(replyTo(key));
      this.#remove(begun);
    }
    this.#userTurn(key, { text, transport: "text" }, PENDING);
  }

  /** More of the answer. */
  piece(key, text) {
    const reply = this.#entry(replyTo(key), "bot", PENDING);
    if (!reply.streamed) {
      // Screen readers get the answer when it is complete, not in pieces.
      reply.streamed = element("span");
      reply.streamed.setAttribute("aria-hidden", "true");
      reply.bubble.replaceChildren(reply.streamed);
      reply.under.replaceChildren();
      reply.item.dataset.final = "false";
      delete reply.item.dataset.cut;
    }
    reply.streamed.append(text);
    this.#bubbles.follow();
  }

  /** The answer is complete and durable; `payload` is that of its event. */
  answer(key, payload) {
    const shown = this.#known.get(replyTo(key));
    if (shown && payload.reply_id !== replyTo(key)) {
      // The server calls it otherwise: its event may have come first.
      this.#known.delete(replyTo(key));
      if (this.#known.has(payload.reply_id)) this.#remove(shown);
      else this.#known.set(payload.reply_id, shown);
    }
    this.#botTurn(payload, PENDING);
  }

  /** The person wants no more of the answer. Says whether there was anything of it. */
  stop(key) {
    const reply = this.#known.get(replyTo(key));
    if (reply?.streamed) this.#botTurn({ reply_id: replyTo(key), text: reply.streamed.textContent, truncated: true }, PENDING);
    return Boolean(reply);
  }

  /** Nothing answered: says why, and offers to ask again. */
  failed(key, why, retry) {
    const { under } = this.#known.get(key);
    const again = element("button", "retry", "Try again");
    again.type = "button";
    again.dataset.role = "retry";
    again.addEventListener("click", retry);
    under.replaceChildren(element("span", "failed", why), again);
    this.#bubbles.follow();
  }

  /** What the person said was refused: it was not said. */
  withdraw(key) {
    const said = this.#known.get(key);
    this.#known.delete(key);
    this.#remove(said);
  }

  /** Whether a reply to what was said is complete, or as complete as it will be. */
  isAnswered(key) {
    return this.#known.get(replyTo(key))?.item.dataset.final === "true";
  }

  #userTurn(key, { text, transport }, place) {
    const said = this.#entry(key, "user", place);
    said.bubble.textContent = text;
    said.item.dataset.final = "true";
    // It may be durable and unanswered: why it failed stays.
    if (place === PENDING || !said.under.childElementCount) said.under.replaceChildren(...via(transport));
    this.#bubbles.follow();
  }

  #heard({ reply_id: id, text }, place) {
    if (!text || this.#known.get(id)?.item.dataset.final === "true") return; // a late mark of a reply that is over
    const reply = this.#entry(id, "bot", place);
    reply.bubble.textContent = text;
    reply.item.dataset.final = "false";
    reply.under.replaceChildren(element("span", "", "heard so far"));
    this.#bubbles.follow();
  }

  #botTurn({ reply_id: id, text, truncated, unheard, transport }, place) {
    if (!text && !unheard) return;
    const reply = this.#entry(id, "bot", place);
    reply.streamed = null;
    reply.item.dataset.final = "true";
    reply.bubble.replaceChildren(text ?? "");
    if (unheard) {
      const rest = element("s", "unheard", unheard);
      reply.bubble.append(text ? " " : "", element("span", "unseen", "Not heard: "), rest);
    }
    if (truncated) reply.item.dataset.cut = "true";
    else delete reply.item.dataset.cut;
    reply.under.replaceChildren(...(truncated ? [element("span", "cut", "cut off")] : []), ...via(transport));
    this.#known.get(askedOf(id))?.under.querySelectorAll(".failed, .retry").forEach((node) => node.remove());
    this.#bubbles.follow();
  }

  #note(key, text, place) {
    if (this.#known.has(key)) return;
    const item = this.#bubbles.makeNote(`${text}, ${clock(place.us)}`);
    const entry = { item };
    this.#known.set(key, entry);
    this.#put(entry, place);
  }

  #entry(id, who, place) {
    let entry = this.#known.get(id);
    if (!entry) {
      entry = this.#bubbles.make(who);
      this.#known.set(id, entry);
      this.#put(entry, place);
    } else if (place !== PENDING && entry.place === PENDING) {
      this.#put(entry, place);
    }
    if (place !== PENDING) entry.bubble.title = clock(place.us);
    return entry;
  }

  #put(entry, place) {
    const before = this.#take(entry);
    entry.place = place;
    let at = this.#entries.length;
    while (at > 0 && isBehind(this.#entries[at - 1].place, place)) at -= 1;
    this.#entries.splice(at, 0, entry);
    if (this.#filling || at < this.#hidden) this.#hidden += 1;
    else if (before !== at) this.#bubbles.put(entry.item, this.#entries[at + 1]?.item);
    while (this.#bubbles.pinned && this.#entries.length - this.#hidden > KEEP_SHOWN) {
      this.#entries[this.#hidden].item.remove();
      this.#hidden += 1;
    }
  }

  #remove(entry) {
    this.#take(entry);
    entry.item.remove();
  }

  /** Takes an entry out of the order; returns where it was. */
  #take(entry) {
    const at = this.#entries.lastIndexOf(entry);
    if (at < 0) return at;
    this.#entries.splice(at, 1);
    if (at < this.#hidden) this.#hidden -= 1;
    return at;
  }
}

function isBehind(one, other) {
  return one.us > other.us || (one.us === other.us && one.seq > other.seq);
}

function via(transport) {
  const name = TRANSPORTS[transport] ?? transport;
  if (!name) return [];
  const mark = element("span", "via", name);
  mark.dataset.role = "via";
  return [mark];
}

function callOf(transport) {
  const name = TRANSPORTS[transport] ?? transport;
  return name ? `${name[0].toUpperCase()}${name.slice(1)} call` : "Conversation";
}

// Ids that the server gives replies to typed turns: with them a reply that was cut off here is known when its event comes.
const replyTo = (key) => `reply.${key}`;
const askedOf = (replyId) => replyId.replace(/^reply\./, "");

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const DAY_AND_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function clock(us) {
  const at = new Date(us / 1_000);
  return (at.toDateString() === new Date().toDateString() ? TIME : DAY_AND_TIME).format(at);
}
