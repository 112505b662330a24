// Latency of the answers of the present page: the last one by stage, and the newest ones as small bars with their median. In a call it
// reads the same turn records that make "answered in ... ms" below an answer. Hidden until there is one.

import { element, part, write } from "./element.js";
import { t } from "./language.js";

/** @import { RtviMessage, Spans, TurnRecord } from "../types/server.js" */
/** @import { Key } from "./language.js" */

// In the order in which the time passes; names of `spans` in the server's turn record.
export const SPANS = /** @type {const} */ ([
  ...["stt_final", "endpoint_wait", "llm_first_token", "first_clause", "tts_first_audio", "playout_queue"],
]);
/** Parts of an answer of full duplex over a socket: of the unit that begins it, and all other time until it is heard. */
export const DUPLEX_SPANS = /** @type {const} */ (["duplex_model", "duplex_voice", "duplex_rest"]);
const KEEP = 20;

/**
 * Return the parts of an answer's latency that a turn record has; null for a turn that answered nothing.
 *
 * @param {TurnRecord} record
 */
export function spansOf({ user_text: asked, spans }) {
  return asked && spans && Object.keys(spans).length ? spans : null;
}

/**
 * Return the whole latency, in milliseconds.
 *
 * @param {Spans} spans
 */
export function totalOf(spans) {
  return Object.values(spans).reduce((sum, ms) => sum + ms, 0);
}

/**
 * Return the middle of some numbers, of which there is at least one.
 *
 * @param {number[]} numbers
 */
export function median(numbers) {
  const sorted = [...numbers].sort((one, other) => one - other);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * Return the parts of an answer of full duplex: the model and the voice as the server measured them for the unit that began it.
 *
 * @param {number} heard_ms from the last sound of the caller to the first one of the bot, at the ear
 * @param {{ cost_llm_ms: number, cost_all_ms: number }} unit
 * @returns {Spans}
 */
export function duplexSpans(heard_ms, { cost_llm_ms: model, cost_all_ms: all }) {
  const [duplex_model, whole] = [Math.min(heard_ms, model), Math.min(heard_ms, Math.max(model, all))];
  return { duplex_model, duplex_voice: whole - duplex_model, duplex_rest: heard_ms - whole };
}

export class LatencyHistory {
  #root;
  #names;
  #summary;
  #bars;
  #stack;
  #legend;
  /** @type {Spans[]} of the newest answers, the oldest first */
  #answers = [];

  /**
   * @param {HTMLDetailsElement} root
   * @param {readonly string[]} [names] of the parts, in the order in which their time passes
   */
  constructor(root, names = SPANS) {
    this.#root = root;
    this.#names = names;
    this.#summary = part("latency-summary", HTMLElement, root);
    this.#bars = part("latency-bars", HTMLElement, root);
    this.#stack = part("latency-stages", HTMLElement, root);
    this.#legend = part("latency-legend", HTMLElement, root);
  }

  /**
   * Handle an RTVI message, if it is the record of a turn that was answered.
   *
   * @param {RtviMessage} message
   */
  take(message) {
    const record = message.type === "server-message" && message.data?.kind === "turn" ? message.data : null;
    const spans = record && spansOf(record);
    if (spans) this.add(spans);
  }

  /**
   * Show another answer.
   *
   * @param {Spans} spans
   */
  add(spans) {
    this.#answers = [...this.#answers, spans].slice(-KEEP);
    this.show();
  }

  /** Show the answers so far, in the language of the page. */
  show() {
    const last = this.#answers.at(-1);
    this.#root.hidden = !last;
    if (!last) return;
    const totals = this.#answers.map(totalOf);
    const values = { ms: Math.round(totalOf(last)), median: Math.round(median(totals)), count: totals.length };
    write(this.#summary, t("latency_summary", values));
    const most = Math.max(...totals, 1);
    this.#bars.setAttribute("aria-label", t("latency_bars", { count: totals.length, median: values.median }));
    this.#bars.replaceChildren(...totals.map((ms) => bar(ms, most)));
    this.#bars.style.setProperty("--median", String(median(totals) / most));
    this.#stages(last);
  }

  /** @param {Spans} spans */
  #stages(spans) {
    const total = totalOf(spans);
    const shown = this.#names.filter((name) => name in spans);
    this.#stack.replaceChildren(
      ...shown.map((name) => {
        const piece = element("i");
        piece.dataset.stage = name;
        piece.style.setProperty("--share", String(total ? spans[name] / total : 0));
        return piece;
      }),
    );
    this.#legend.replaceChildren(...shown.flatMap((name) => legendOf(name, spans[name])));
  }
}

/**
 * @param {number} ms
 * @param {number} most
 */
function bar(ms, most) {
  const made = element("i");
  made.title = `${Math.round(ms)} ms`;
  made.style.setProperty("--height", String(ms / most));
  return made;
}

/**
 * @param {string} name
 * @param {number} ms
 */
function legendOf(name, ms) {
  const label = element("dt", "", t(/** @type {Key} */ (`span_${name}`)));
  label.dataset.stage = name;
  return [label, element("dd", "", `${Math.round(ms)} ms`)];
}
