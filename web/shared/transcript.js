// The conversation of a call as bubbles. Decides which words belong to which bubble and which of the bot's words were heard:
// RTVI messages in, DOM out. A sentence of the bot arrives before it is spoken and is shown dim; its words arrive one by one at
// the moment they are heard. Messages about words may come late, or be dropped by an interruption: the server's record of what was
// heard of a reply settles its bubble.

import { element } from "./element.js";
import { t, worded } from "./language.js";
import { heardLater } from "./latency.js";
import { SPANS, spansOf, totalOf } from "./latency_history.js";
import { citing } from "./passages.js";

/** @import { BotOutput, CitedPassage, HeardLatency, HeardReply, RtviMessage, Spans, TurnRecord, UserInput } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { Bubble, Bubbles } from "./bubbles.js" */

/** @typedef {{ words: HTMLElement[], next: number }} Segment sentence of the bot; `next` is its first word not yet heard */
/** @typedef {{ root: ParentNode & Node, after: ChildNode | null }} Left where a bubble was before it was removed */
/**
 * @typedef {Bubble & { segments: Map<BotOutput["segment_id"], Segment>, settled: number, left?: Left }} Reply `settled` is the number
 *   of its first words about which the server has reported
 */
/** @typedef {Bubble & { settled: HTMLElement, interim: HTMLElement, stopped: boolean }} Spoken */

export class Transcript {
  #bubbles;
  /** @type {Spoken | null} bubble of the turn that the user is speaking */
  #user = null;
  /** @type {Reply | null} bubble that the bot is speaking */
  #reply = null;
  /** @type {Reply | null} last bubble of the bot, for the turn record that follows it */
  #latest = null;

  /** @type {HeardLatency | null} of the reply whose turn record has not come yet */
  #heard = null;

  /** @param {Bubbles} bubbles */
  constructor(bubbles) {
    this.#bubbles = bubbles;
  }

  /**
   * Handle an RTVI message, if it is about what was said.
   *
   * @param {RtviMessage} message
   */
  take(message) {
    switch (message.type) {
      case "user-started-speaking":
        if (this.#user?.stopped) this.#user = null;
        break;
      case "user-stopped-speaking":
        if (this.#user) this.#user.stopped = true;
        break;
      case "user-input":
        this.#heardUser(message.data);
        break;
      case "bot-output":
        this.#botOutput(message.data);
        break;
      case "bot-interrupted":
        this.cut();
        break;
      case "server-message":
        if (message.data?.kind === "turn") this.#turn(message.data);
        if (message.data?.kind === "heard") this.#settle(message.data);
        if (message.data?.kind === "passages") this.#cite(message.data.passages);
        break;
      default:
    }
  }

  /**
   * Take the latency of the present reply as it was heard here, for the turn record that follows.
   *
   * @param {HeardLatency} heard
   */
  hear(heard) {
    this.#heard = heard;
  }

  /**
   * Add a line about the call itself.
   *
   * @param {() => string} words in the language of the page
   */
  note(words) {
    this.#bubbles.put(this.#bubbles.makeNote(words));
  }

  /** Mark the words of the present reply that were not heard. */
  cut() {
    const reply = this.#reply;
    this.#reply = null;
    if (!reply) return;
    const { parentNode: root, previousSibling: after } = reply.item;
    if (wordsOf(reply).some((word) => word.classList.contains("spoken"))) {
      markCut(reply);
      this.#bubbles.follow();
    } else if (root) {
      reply.left = { root, after };
      reply.item.remove(); // as far as is known nothing of it was heard: it was not said
    }
  }

  /**
   * Mark the words of a reply that were heard, by the server's record.
   *
   * @param {HeardReply} heard
   */
  #settle({ text, unheard, truncated, in_context: inContext }) {
    const said = text.split(/\s+/).filter(Boolean);
    if (!said.length) return;
    const isOver = truncated && inContext;
    let reply = this.#latest;
    if (!reply || reply.settled >= wordsOf(reply).length) {
      // Its sentence was dropped by the interruption, before it was shown.
      if (!isOver) return;
      reply = this.#newReply(this.#user?.item);
      this.#latest = reply;
      this.#write(reply, undefined, `${text} ${unheard}`);
    }
    if (!settleWords(reply, said, { isOver })) return;
    if (reply.left) {
      const { root, after } = reply.left;
      this.#bubbles.put(reply.item, after === null ? root.firstChild : after.parentNode ? after.nextSibling : null);
      delete reply.left;
    }
    if (reply !== this.#reply) markCut(reply);
    this.#bubbles.follow();
  }

  /** End everything that is still open: the call is over. */
  close() {
    this.cut();
    this.#dropInterim();
    this.#user = null;
    this.#latest = this.#heard = null;
  }

  /** @param {UserInput} input */
  #heardUser({ text, input_type: kind, final }) {
    if (kind === "chat") {
      this.#dropInterim();
      this.#user = null;
      const typed = this.#bubble("user");
      typed.item.dataset.final = "true";
      typed.bubble.textContent = text;
      this.#bubbles.follow();
      return;
    }
    if (!this.#user) {
      const bubble = this.#bubble("user");
      this.#user = { ...bubble, settled: element("span", "settled"), interim: element("span", "interim"), stopped: false };
      // Screen readers get the words once they are final, not every guess.
      this.#user.interim.setAttribute("aria-hidden", "true");
      bubble.bubble.append(this.#user.settled, this.#user.interim);
      bubble.item.dataset.final = "false";
    }
    const { settled, interim, item } = this.#user;
    const space = settled.textContent ? " " : "";
    if (final) {
      settled.append(space + text);
      interim.textContent = "";
    } else {
      interim.textContent = space + text;
    }
    item.dataset.final = String(Boolean(final));
    this.#bubbles.follow();
  }

  #dropInterim() {
    if (!this.#user) return;
    this.#user.interim.textContent = "";
    this.#user.item.dataset.final = "true";
    if (!this.#user.settled.textContent) this.#user.item.remove();
  }

  /** @param {BotOutput} output */
  #botOutput({ text, spoken, segment_id: id }) {
    if (!spoken) {
      this.#segment(id, text);
      return;
    }
    // Without word times a whole sentence is reported once it was spoken, and not before.
    let segment = this.#reply?.segments.get(id);
    if (!segment) {
      if (id !== undefined && this.#latest?.segments.has(id)) return; // a late word of a reply that was cut
      segment = this.#segment(id, text);
    }
    for (const word of text.split(/\s+/).filter(Boolean)) brighten(segment, word);
  }

  /**
   * Add a sentence to the present reply.
   *
   * @param {BotOutput["segment_id"]} id
   * @param {string} text
   * @returns {Segment}
   */
  #segment(id, text) {
    if (!this.#reply) {
      if (this.#user) this.#dropInterim();
      this.#user = null;
      this.#reply = this.#newReply();
      this.#latest = this.#reply;
    }
    const segment = this.#write(this.#reply, id, text);
    this.#bubbles.follow();
    return segment;
  }

  /**
   * @param {HTMLElement} [before]
   * @returns {Reply}
   */
  #newReply(before) {
    const made = this.#bubbles.make("bot");
    this.#bubbles.put(made.item, before);
    return { ...made, segments: new Map(), settled: 0 };
  }

  /**
   * @param {Reply} reply
   * @param {BotOutput["segment_id"]} id
   * @param {string} text
   * @returns {Segment}
   */
  #write({ bubble, segments }, id, text) {
    const words = text.split(/\s+/).filter(Boolean).map((word) => element("span", "word", word));
    const line = element("span", "segment");
    for (const word of words) line.append(word, " ");
    bubble.append(line);
    const segment = { words, next: 0 };
    segments.set(id, segment);
    return segment;
  }

  /** @param {CitedPassage[]} passages */
  #cite(passages) {
    this.#latest?.under.append(...citing(passages));
    this.#bubbles.follow();
  }

  /** @param {TurnRecord} record */
  #turn(record) {
    const { interrupted, endpoint_silence_ms: silenceMs } = record;
    const reply = this.#latest;
    if (!interrupted && this.#reply) {
      for (const { words } of this.#reply.segments.values()) words.forEach((word) => word.classList.add("spoken"));
      this.#reply = null;
    }
    this.#latest = null;
    const heard = this.#heard;
    this.#heard = null;
    const spans = spansOf(record);
    if (!reply || !spans) return;
    reply.under.append(answeredIn(spans, silenceMs, heard));
    this.#bubbles.follow();
  }

  /** @param {"user" | "bot"} who */
  #bubble(who) {
    const made = this.#bubbles.make(who);
    this.#bubbles.put(made.item);
    return made;
  }
}

/** @param {Reply} reply */
function wordsOf(reply) {
  return [...reply.segments.values()].flatMap((segment) => segment.words);
}

/**
 * Show which words of a reply that is over were not heard.
 *
 * @param {Reply} reply
 */
function markCut(reply) {
  const unheard = wordsOf(reply).filter((word) => !word.classList.contains("spoken"));
  for (const word of unheard) word.classList.add("unheard");
  reply.under.querySelector(".cut")?.remove();
  if (unheard.length) {
    reply.item.dataset.cut = "true";
    reply.under.prepend(worded(element("span", "cut"), () => t("cut_off")));
  } else {
    delete reply.item.dataset.cut;
  }
}

/**
 * Mark words as heard that follow those which the server has reported; return false where they are not in the reply.
 *
 * @param {Reply} reply
 * @param {string[]} said
 * @param {{ isOver: boolean }} options `isOver`: no other word of the reply was heard, whatever was reported as it left the server
 */
function settleWords(reply, said, { isOver }) {
  const words = wordsOf(reply).slice(reply.settled);
  /** @type {(at: number, word: string | undefined) => boolean} */
  const isAt = (at, word) => word === undefined || plain(words[at]?.textContent ?? "") === plain(word);
  const first = words.findIndex((_, at) => isAt(at, said[0]) && isAt(at + 1, said[1]));
  if (first < 0) return false;
  const heard = { words, next: first };
  for (const word of said) brighten(heard, word);
  for (const word of words) if (word.classList.contains("spoken")) word.classList.remove("unheard");
  if (isOver) words.slice(heard.next).forEach((word) => word.classList.remove("spoken"));
  reply.settled = isOver ? Infinity : reply.settled + heard.next;
  return true;
}

/**
 * Mark the next word of a segment as heard. The voice may pronounce a word in another way than it is written: look a little ahead.
 *
 * @param {Segment} segment
 * @param {string} heard
 */
function brighten(segment, heard) {
  const { words } = segment;
  /** @type {(word: HTMLElement) => boolean} */
  const same = (word) => plain(word.textContent ?? "") === plain(heard);
  const ahead = words.slice(segment.next, segment.next + 4).findIndex(same);
  const end = Math.min(words.length, segment.next + Math.max(0, ahead) + 1);
  for (; segment.next < end; segment.next += 1) words[segment.next].classList.add("spoken");
}

/** @param {string} text */
function plain(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
}

/**
 * @param {Spans} spans
 * @param {number | null | undefined} silenceMs
 * @param {HeardLatency | null} heard
 */
function answeredIn(spans, silenceMs, heard) {
  const total = totalOf(spans);
  const shown = SPANS.filter((name) => name in spans);
  const labels = shown.map((name) => [name, t(/** @type {Key} */ (`span_${name}`))]);
  const chip = element("details", "chip");
  chip.dataset.role = "answered-in";
  chip.append(worded(element("summary"), () => t("answered_in", { ms: Math.round(total) })));
  chip.title = labels.map(([name, label]) => `${label}: ${Math.round(spans[name])} ms`).join("\n");
  const table = element("dl", "spans");
  let before = 0;
  for (const name of shown) {
    const bar = element("dd", "bar");
    bar.style.setProperty("--from", String(total ? before / total : 0));
    bar.style.setProperty("--share", String(total ? spans[name] / total : 0));
    bar.append(element("span", "", `${Math.round(spans[name])} ms`));
    table.append(worded(element("dt"), () => t(/** @type {Key} */ (`span_${name}`))), bar);
    before += spans[name];
  }
  chip.append(table);
  if (heard) chip.append(worded(element("p", "heard"), () => heardLater(heard, total)));
  if (silenceMs !== null && silenceMs !== undefined) {
    chip.append(worded(element("p"), () => t("ended_after", { ms: silenceMs })));
  }
  return chip;
}
