// Record of a session as bubbles, in the order of event time, over all transports. Takes committed events, and the turn that this
// page is sending at the moment; an event of a turn that is shown already settles it instead of showing it twice. A turn of the
// user is identified by its key, a reply by its reply id.

import { pictureOf } from "./attachments.js";
import { element } from "./element.js";
import { required } from "./guards.js";
import { dateAndTime, locale, t, worded } from "./language.js";
import { citing } from "./passages.js";

/** @import { Attached, BotTurn, Heard, SessionEvent, TierChange, UserTurn } from "../types/server.js" */
/** @import { Bubble, Bubbles } from "./bubbles.js" */
/** @import { Key } from "./language.js" */

/** @typedef {{ us: number, seq: number }} Place */
/** @typedef {{ item: HTMLElement, place?: Place }} Note line about the conversation */
/** @typedef {Bubble & { place?: Place, streamed?: HTMLElement | null }} Turn `streamed` holds an answer that is not complete */
/** @typedef {Note | Turn} Entry */

/** @type {Record<string, Key | "">} */
const TRANSPORTS = {
  text: "",
  webrtc: "via_voice",
  local: "via_voice",
  eval: "via_voice",
  duplex_ws: "via_voice",
  realtime_ws: "via_voice",
  half_duplex: "via_voice",
  openai: "via_voice",
  unmute: "via_voice",
  file: "via_recording",
  twilio: "via_phone",
  twilio_relay: "via_phone",
  telephony: "via_phone",
};
// Lines for changes of the tier, by the event that led to them. The agent's return to its own tier is not worth one.
/** @type {Record<string, Key>} */
const CHANGES = {
  offered: "tier_offered",
  requested: "tier_waiting",
  accepted: "tier_waiting",
  policy: "tier_waiting",
  declined: "tier_declined",
  withdrawn: "tier_withdrawn",
  expired: "tier_expired",
  taken: "tier_taken",
  returned: "tier_returned",
  desk_lost: "tier_lost",
};
// The same for the tiers of a step to another medium. That it was taken shows by what joins or leaves.
/** @type {Record<string, Key>} */
const STEPS = { step_offered: "step_offered", declined: "step_declined", failed: "step_failed", expired: "step_failed" };
// In place of a transport: what a call shows, from when to when.
const SHOWN = ["camera", "screen"];
// Turns that are not committed yet come after all that are.
/** @type {Place} */
const PENDING = { us: Infinity, seq: Infinity };
// A page of thousands of bubbles is laid out for seconds: the end of the record is shown, more of it on demand.
const SHOW_FIRST = 100;
const KEEP_SHOWN = 400;
// Declines an offer, and takes back what was accepted: the server's rules of its language understand it as both.
export const DECLINE = "No, never mind.";
const TURNS = new Set(["user_turn", "bot_turn"]);

/**
 * Return the end of a list of events that holds a number of turns.
 *
 * @param {SessionEvent[]} events
 * @param {number} count
 */
export function lastTurns(events, count) {
  let from = events.length;
  for (let turns = 0; from > 0 && turns < count; from -= 1) {
    if (TURNS.has(events[from - 1].kind)) turns += 1;
  }
  return events.slice(from);
}

export class SessionRecord {
  #bubbles;
  #perceived;
  /** @type {Entry[]} in order of time */
  #entries = [];
  #hidden = 0; // number of the first entries that are not shown
  #filling = false;
  /** @type {Map<string, Turn>} by key or reply id */
  #turns = new Map();
  /** @type {Map<string, Attached>} pictures of the session, by key */
  #pictures = new Map();
  /** @type {Set<string>} keys of the notes */
  #noted = new Set();

  /**
   * @param {Bubbles} bubbles
   * @param {{ perceived?: boolean }} [options] `perceived`: show what was perceived of a turn, and notes of humans for the model
   */
  constructor(bubbles, { perceived = false } = {}) {
    this.#bubbles = bubbles;
    this.#perceived = perceived;
  }

  /**
   * Begin or end taking in everything so far, during which nothing is shown.
   *
   * @param {boolean} filling
   */
  fill(filling) {
    this.#filling = filling;
    if (!filling) this.showEarlier();
    this.#bubbles.fill(filling);
  }

  /** True if there are earlier entries than those that are shown. */
  get hasEarlier() {
    return this.#hidden > 0;
  }

  /** Show more of the earlier entries. */
  showEarlier() {
    const from = Math.max(0, this.#hidden - SHOW_FIRST);
    const items = this.#entries.slice(from, this.#hidden).map(({ item }) => item);
    this.#hidden = from;
    this.#bubbles.prepend(items);
  }

  /**
   * Show a committed event, if it is about what was said.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    const place = { us: event.event_us, seq: event.seq };
    switch (event.kind) {
      case "picture":
        this.#pictures.set(event.key, event.payload);
        break;
      case "user_turn":
        this.#userTurn(event.key, event.payload, place);
        break;
      case "heard":
        this.#heard(event.payload, place);
        break;
      case "bot_turn":
        this.#botTurn(event.payload, place);
        break;
      case "joined":
        this.#note(event.key, () => beganOf(event.payload.transport), place);
        break;
      case "left":
        this.#note(event.key, () => endedOf(event.payload.transport), place);
        break;
      case "tier":
        this.#tier(event.key, event.payload, place);
        break;
      default:
    }
  }

  /**
   * Show a turn that the user sends from this page, for the first time or again.
   *
   * @param {string} key
   * @param {string} text
   * @param {Attached[]} [pictures]
   */
  ask(key, text, pictures = []) {
    const begun = this.#turns.get(replyTo(key));
    if (begun?.streamed) {
      this.#turns.delete(replyTo(key));
      this.#remove(begun);
    }
    for (const [at, picture] of pictures.entries()) this.#pictures.set(`${key}.${at}`, picture);
    const shown = pictures.map((_, at) => ({ key: `${key}.${at}` }));
    this.#userTurn(key, { text, transport: "text", pictures: shown }, PENDING);
  }

  /**
   * Show more of the answer.
   *
   * @param {string} key
   * @param {string} text
   */
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

  /**
   * Show the answer, which is complete and durable.
   *
   * @param {string} key
   * @param {BotTurn} payload that of its event
   */
  answer(key, payload) {
    const shown = this.#turns.get(replyTo(key));
    if (shown && payload.reply_id !== replyTo(key)) {
      // The server uses another id: its event may have come first.
      this.#turns.delete(replyTo(key));
      if (this.#turns.has(payload.reply_id)) this.#remove(shown);
      else this.#turns.set(payload.reply_id, shown);
    }
    this.#botTurn(payload, PENDING);
  }

  /**
   * End the answer where it is, for the user. Return true if a part of it was shown.
   *
   * @param {string} key
   */
  stop(key) {
    const reply = this.#turns.get(replyTo(key));
    if (reply?.streamed) this.#botTurn({ reply_id: replyTo(key), text: reply.streamed.textContent ?? "", truncated: true }, PENDING);
    return Boolean(reply);
  }

  /**
   * Show why a turn has no answer, and offer to send it again.
   *
   * @param {string} key
   * @param {string} why
   * @param {() => void} retry
   */
  failed(key, why, retry) {
    const { under } = required(this.#turns.get(key), "the turn");
    const again = worded(element("button", "retry"), () => t("try_again"));
    again.type = "button";
    again.dataset.role = "retry";
    again.addEventListener("click", retry);
    under.replaceChildren(element("span", "failed", why), again);
    this.#bubbles.follow();
  }

  /**
   * Remove a turn of the user that was refused: it is not part of the conversation.
   *
   * @param {string} key
   */
  withdraw(key) {
    const said = required(this.#turns.get(key), "the turn");
    this.#turns.delete(key);
    this.#remove(said);
  }

  /**
   * Return true if the reply to a turn is complete, or was ended.
   *
   * @param {string} key
   */
  isAnswered(key) {
    return this.#turns.get(replyTo(key))?.item.dataset.final === "true";
  }

  /**
   * @param {string} key
   * @param {UserTurn} payload
   * @param {Place} place
   */
  #userTurn(key, { text, transport, typed = false, rendered, pictures = [] }, place) {
    const said = this.#entry(key, "user", place);
    const shown = pictures.flatMap((each) => this.#pictures.get(each.key) ?? []);
    said.bubble.replaceChildren(...shown.map(pictureOf), text === DECLINE ? declined() : text);
    said.item.dataset.final = "true";
    // It may be durable and unanswered: the reason of the failure stays.
    if (place === PENDING || !said.under.childElementCount) {
      said.under.replaceChildren(...(this.#perceived ? tags(rendered) : []), ...(typed ? [] : via(transport)));
    }
    this.#bubbles.follow();
  }

  /**
   * @param {Heard} payload
   * @param {Place} place
   */
  #heard({ reply_id: id, text }, place) {
    if (!text || this.#turns.get(id)?.item.dataset.final === "true") return; // a late mark of a reply that is over
    const reply = this.#entry(id, "bot", place);
    reply.bubble.textContent = text;
    reply.item.dataset.final = "false";
    reply.under.replaceChildren(worded(element("span"), () => t("heard_so_far")));
    this.#bubbles.follow();
  }

  /**
   * @param {BotTurn} payload
   * @param {Place} place
   */
  #botTurn({ reply_id: id, text, truncated, unheard, transport, by, passages }, place) {
    if (!text && !unheard) return;
    const reply = this.#entry(id, "bot", place);
    reply.streamed = null;
    reply.item.dataset.final = "true";
    reply.bubble.replaceChildren(text ?? "");
    if (unheard) {
      const rest = element("s", "unheard", unheard);
      reply.bubble.append(text ? " " : "", worded(element("span", "unseen"), () => `${t("not_heard")} `), rest);
    }
    if (truncated) reply.item.dataset.cut = "true";
    else delete reply.item.dataset.cut;
    if (by === "human") this.#bubbles.markHuman(reply);
    const author = by === "human" ? [worded(element("span", "by"), () => t("by_colleague"))] : [];
    const cut = truncated ? [worded(element("span", "cut"), () => t("cut_off"))] : [];
    reply.under.replaceChildren(...author, ...cut, ...via(transport), ...citing(passages));
    this.#turns.get(askedOf(id))?.under.querySelectorAll(".failed, .retry").forEach((node) => node.remove());
    this.#bubbles.follow();
  }

  /**
   * @param {string} key
   * @param {TierChange} payload
   * @param {Place} place
   */
  #tier(key, { reason, note, to }, place) {
    const step = to && STEPS[reason];
    // The way to a medium needs no line.
    const change = step || (to && reason === "accepted" ? undefined : CHANGES[reason]);
    if (!change) return;
    const text = () => (step ? t(step, { medium: t(`medium_${to}`) }) : t(change));
    const shown = this.#perceived && reason === "returned" && note;
    this.#note(key, () => (shown ? t("with_note", { text: text(), note }) : text()), place);
  }

  /**
   * @param {string} key
   * @param {() => string} words
   * @param {Place} place
   */
  #note(key, words, place) {
    if (this.#noted.has(key)) return;
    this.#noted.add(key);
    this.#put({ item: this.#bubbles.makeNote(() => `${words()}, ${clock(place.us)}`) }, place);
  }

  /**
   * Return the bubble of a turn, where its place is.
   *
   * @param {string} id key or reply id
   * @param {"user" | "bot"} who
   * @param {Place} place
   * @returns {Turn}
   */
  #entry(id, who, place) {
    let entry = this.#turns.get(id);
    if (!entry) {
      entry = this.#bubbles.make(who);
      this.#turns.set(id, entry);
      this.#put(entry, place);
    } else if (place !== PENDING && entry.place === PENDING) {
      this.#put(entry, place);
    }
    if (place !== PENDING) entry.bubble.title = clock(place.us);
    return entry;
  }

  /**
   * @param {Entry} entry
   * @param {Place} place
   */
  #put(entry, place) {
    const before = this.#take(entry);
    entry.place = place;
    let at = this.#entries.length;
    while (at > 0 && isBehind(this.#entries[at - 1].place ?? PENDING, place)) at -= 1;
    this.#entries.splice(at, 0, entry);
    if (this.#filling || at < this.#hidden) this.#hidden += 1;
    else if (before !== at) this.#bubbles.put(entry.item, this.#entries[at + 1]?.item);
    while (this.#bubbles.pinned && this.#entries.length - this.#hidden > KEEP_SHOWN) {
      this.#entries[this.#hidden].item.remove();
      this.#hidden += 1;
    }
  }

  /** @param {Entry} entry */
  #remove(entry) {
    this.#take(entry);
    entry.item.remove();
  }

  /**
   * Take an entry out of the order; return where it was.
   *
   * @param {Entry} entry
   */
  #take(entry) {
    const at = this.#entries.lastIndexOf(entry);
    if (at < 0) return at;
    this.#entries.splice(at, 1);
    if (at < this.#hidden) this.#hidden -= 1;
    return at;
  }
}

/**
 * @param {Place} one
 * @param {Place} other
 */
function isBehind(one, other) {
  return one.us > other.us || (one.us === other.us && one.seq > other.seq);
}

/**
 * Return what was perceived of a turn, from the remarks in brackets of the text that the model reads.
 *
 * @param {string | undefined} rendered
 */
function tags(rendered) {
  const remarks = [...(rendered ?? "").matchAll(/\[([^\]]{1,200})\]/g)].map(([, remark]) => remark.trim());
  return [...new Set(remarks)].filter(Boolean).map((remark) => {
    const tag = element("span", "tag", remark);
    tag.dataset.role = "tag";
    return tag;
  });
}

/** Return the words of the button that declines, in the language of the page; those that were sent are their title. */
function declined() {
  const words = worded(element("span"), () => t("declined_words"));
  words.title = DECLINE;
  return words;
}

/** @param {string | undefined} transport */
function via(transport) {
  if (!nameOf(transport)) return [];
  const mark = worded(element("span", "via"), () => nameOf(transport));
  mark.dataset.role = "via";
  return [mark];
}

/** @param {string} transport */
function beganOf(transport) {
  return isShown(transport) ? t(`${transport}_on`) : t("call_began", { call: callOf(transport) });
}

/** @param {string} transport */
function endedOf(transport) {
  return isShown(transport) ? t(`${transport}_off`) : t("call_ended", { call: callOf(transport) });
}

/**
 * @param {string} transport
 * @returns {transport is "camera" | "screen"}
 */
function isShown(transport) {
  return SHOWN.includes(transport);
}

/** @param {string} transport */
function callOf(transport) {
  const name = nameOf(transport);
  return name ? t("call_of", { name: `${name[0].toUpperCase()}${name.slice(1)}` }) : t("conversation");
}

/** @param {string | undefined} transport */
function nameOf(transport) {
  if (!transport) return "";
  const key = TRANSPORTS[transport];
  return key === undefined ? transport : key && t(key);
}

// Ids of the server for replies to typed turns: by them a reply that was cut off here is recognised when its event comes.
/** @type {(key: string) => string} */
const replyTo = (key) => `reply.${key}`;
/** @type {(replyId: string) => string} */
const askedOf = (replyId) => replyId.replace(/^reply\./, "");

/** @param {number} us */
function clock(us) {
  const at = new Date(us / 1_000);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? at.toLocaleTimeString(locale(), { timeStyle: "short" }) : dateAndTime(us);
}
