// Lanes of a session: what was perceived of the caller, by specialist and by the time at which it happened. Shows the last stretch of
// the session, and follows it while events come.

import { element, part } from "./element.js";
import { locale, t } from "./language.js";

/** @import { Annotated, SessionEvent } from "../types/server.js" */
/** @import { Key } from "./language.js" */

const WINDOW_US = 60_000_000;
// A shorter stretch is drawn as if it had this length.
const LEAST_WINDOW_US = 5_000_000;
const REM_PER_S = 8;
// Older reports are left of the window for good.
const MOST_MARKS = 600;
// A report without an extent, and words without times, are drawn this wide.
const LEAST_US = 150_000;
/** @type {[string, "words" | "typed" | "speaker" | "voice" | "sight"][]} type of a report, and its lane, from the top */
const LANES = [
  ["SpeechPayload", "words"],
  ["TextPayload", "typed"],
  ["DiarPayload", "speaker"],
  ["ProsodyPayload", "voice"],
  ["VisionPayload", "sight"],
];
/** @type {Record<"words" | "typed" | "speaker" | "voice" | "sight", Key>} */
const LANE_NAMES = { words: "lane_words", typed: "lane_typed", speaker: "lane_speaker", voice: "lane_voice", sight: "lane_sight" };
// As in the prompt (sequencer/rendering.py).
const LOUDER_DB = 6;
const HIGHER_SEMITONES = 7;
const MOOD = 0.6;

/**
 * @typedef {{ lane: keyof typeof LANE_NAMES, statement: string, start_us: number, end_us: number, text: string, late: boolean, plain: boolean }} Mark
 */

export class Lanes {
  #fold;
  #rows;
  #notice;
  /** @type {Map<string, Mark[]>} by statement: a revision replaces all marks of the one before */
  #marks = new Map();
  #last_us = 0;

  /** @param {HTMLDetailsElement} fold contains the lanes and the line for "nothing yet" */
  constructor(fold) {
    this.#fold = fold;
    this.#rows = part("lanes-rows", HTMLElement, fold);
    this.#notice = part("lanes-notice", HTMLParagraphElement, fold);
    fold.addEventListener("toggle", () => this.draw());
  }

  /**
   * Take an event of the session; those that are no reports are ignored.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    if (event.kind !== "annotation") return;
    const marks = marksOf(event.event_us, event.payload);
    const [first] = marks;
    const key = first?.statement ?? statementOf(event.payload);
    this.#marks.delete(key);
    if (first) this.#marks.set(key, marks);
    if (this.#marks.size > MOST_MARKS) this.#marks.delete(this.#marks.keys().next().value ?? "");
    this.#last_us = Math.max(this.#last_us, event.event_us, ...marks.map((mark) => mark.end_us));
    this.draw();
  }

  /** Show the lanes, in the language of the page. */
  draw() {
    if (!this.#fold.open) return;
    const shown = [...this.#marks.values()].flat().filter((mark) => mark.end_us > this.#last_us - WINDOW_US);
    this.#notice.hidden = shown.length > 0;
    const first_us = Math.min(...shown.map((mark) => mark.start_us));
    const length_us = Math.min(Math.max(this.#last_us - first_us, LEAST_WINDOW_US), WINDOW_US);
    const since_us = this.#last_us - length_us;
    const follows = this.#rows.scrollLeft + this.#rows.clientWidth >= this.#rows.scrollWidth - 2;
    const rows = LANES.map(([, name]) => ({ name, marks: shown.filter((mark) => mark.lane === name) })).filter(({ marks }) => marks.length);
    this.#rows.replaceChildren(...rows.map(({ name, marks }) => lane(name, marks, since_us, length_us)));
    if (follows) this.#rows.scrollLeft = this.#rows.scrollWidth;
  }
}

/**
 * @param {Mark["lane"]} name
 * @param {Mark[]} marks
 * @param {number} since_us
 * @param {number} length_us
 */
function lane(name, marks, since_us, length_us) {
  const row = element("div", "lane");
  row.dataset.lane = name;
  row.append(element("b", "", t(LANE_NAMES[name])));
  const track = element("ol", "track");
  track.ariaLabel = t(LANE_NAMES[name]);
  track.style.inlineSize = `${(REM_PER_S * length_us) / 1e6}rem`;
  marks.sort((one, other) => one.start_us - other.start_us);
  for (const mark of marks) {
    const item = element("li", "", mark.text);
    const start_us = Math.max(mark.start_us, since_us);
    const share = (/** @type {number} */ us) => `${((100 * us) / length_us).toFixed(2)}%`;
    item.style.insetInlineStart = share(start_us - since_us);
    item.style.inlineSize = share(Math.max(mark.end_us - start_us, LEAST_US));
    item.classList.toggle("late", mark.late);
    item.classList.toggle("plain", mark.plain);
    item.title = [mark.text, new Date(mark.start_us / 1_000).toLocaleTimeString(locale()), ...(mark.late ? [t("late")] : [])].join(" · ");
    track.append(item);
  }
  row.append(track);
  return row;
}

/** @param {Annotated} payload */
function statementOf(payload) {
  return `${payload.call_id}/${payload.statement}`;
}

/**
 * Return the marks of a report: one for each word, or one.
 *
 * @param {number} event_us
 * @param {Annotated} payload
 * @returns {Mark[]}
 */
export function marksOf(event_us, payload) {
  const { body } = payload;
  const [, name] = LANES.find(([type]) => type === body.type) ?? [];
  if (name === undefined) return [];
  const statement = statementOf(payload);
  const late = Boolean(payload.late);
  if (body.words?.length) {
    return body.words.map((word) => ({
      lane: name,
      statement,
      start_us: word.start_us,
      end_us: word.end_us,
      text: word.text,
      late,
      plain: false,
    }));
  }
  const text = body.text ?? speakers(body) ?? (body.type === "ProsodyPayload" ? voice(body) : sight(body));
  if (name === "sight" && !text) return [];
  const start_us = body.start_us ?? event_us - LEAST_US;
  const end_us = body.end_us ?? event_us;
  return [{ lane: name, statement, start_us, end_us, text: text || t("as_before"), late, plain: !text }];
}

/** @param {Annotated["body"]} body */
function speakers({ speaker_id: speaker, also }) {
  return speaker && also ? `${speaker} + ${also}` : speaker;
}

/** @param {Annotated["body"]} body */
function voice(body) {
  const marks = [
    (body.anger ?? 0) >= MOOD && t("angry"),
    (body.stress ?? 0) >= MOOD && t("tense"),
    (body.joy ?? 0) >= MOOD && t("happy"),
    (body.level_offset_db ?? 0) >= LOUDER_DB && t("louder"),
    (body.pitch_offset_semitones ?? 0) >= HIGHER_SEMITONES && t("higher"),
  ];
  return marks.filter(Boolean).join(", ");
}

/** @param {Annotated["body"]} body */
function sight(body) {
  const away = body.looking === "away" && t("looking_away");
  return [body.gesture, body.ref, body.facial_affect, away].filter(Boolean).join(" · ");
}
