// Latencies of a recorded call: one bar for each answer, split by stage, in a table that has the same figures as numbers.

import { answersOf, stageNames } from "./call_facts.js";
import { clockOf } from "./clock_text.js";
import { element } from "./element.js";
import { t, tIfKnown } from "./language.js";
import { captionsOf } from "./waveform.js";

/** @import { RecordingDetail } from "../types/server.js" */
/** @import { Answer } from "./call_facts.js" */

// Colours of stages in the style sheet; a further one begins again.
const COLOURS = 7;

export class LatencyBars {
  #fold = element("details", "latencies");
  #seek;
  /** @type {Answer[]} */
  #answers = [];
  /** @type {RecordingDetail | null} */
  #call = null;

  /**
   * @param {HTMLElement} root gets the fold
   * @param {(at_ms: number) => void} seek moves the player to a time of the call
   */
  constructor(root, seek) {
    this.#seek = seek;
    this.#fold.dataset.role = "latencies";
    this.#fold.hidden = true;
    this.#fold.addEventListener("toggle", () => this.#fill());
    root.append(this.#fold);
  }

  /** @param {RecordingDetail} call that was chosen */
  show(call) {
    this.#call = call;
    this.#answers = answersOf(call.events, captionsOf(call.events));
    this.#fold.hidden = !this.#answers.length;
    this.#fold.replaceChildren(element("summary", "", t("rec_latencies", { count: this.#answers.length })));
    this.#fill();
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (this.#call) this.show(this.#call);
  }

  /** Make the table when it is to be seen for the first time: a call of an hour has hundreds of answers. */
  #fill() {
    if (!this.#fold.open || this.#fold.childElementCount > 1) return;
    const names = stageNames(this.#answers);
    const longest_ms = Math.max(1, ...this.#answers.map(({ total_ms, heard_ms }) => Math.max(total_ms, heard_ms ?? 0)));
    const hasHeard = this.#answers.some(({ heard_ms }) => heard_ms !== null);
    const table = element("table");
    table.append(element("caption", "unseen", t("rec_latencies_label")));
    const head = element("tr");
    const titles = [t("rec_answer"), t("rec_bar"), t("rec_at_server")];
    if (hasHeard) titles.push(t("rec_at_ear"));
    for (const [place, title] of [...titles, ...names.map(stageTitle)].entries()) {
      const cell = element("th", "", title);
      cell.scope = "col";
      if (place >= titles.length) cell.prepend(swatch(place - titles.length));
      head.append(cell);
    }
    const headRow = element("thead");
    headRow.append(head);
    const body = element("tbody");
    body.append(...this.#answers.map((answer) => this.#row(answer, names, longest_ms, hasHeard)));
    table.append(headRow, body);
    const scrolled = element("div", "scrolled");
    scrolled.tabIndex = 0;
    scrolled.role = "region";
    scrolled.ariaLabel = t("rec_latencies_label");
    scrolled.append(table);
    this.#fold.append(scrolled);
  }

  /**
   * @param {Answer} answer
   * @param {string[]} names of the stages
   * @param {number} longest_ms of all answers
   * @param {boolean} hasHeard
   */
  #row(answer, names, longest_ms, hasHeard) {
    const row = element("tr");
    const head = element("th");
    head.scope = "row";
    const button = element("button", "", clockOf(answer.at_ms));
    button.type = "button";
    button.addEventListener("click", () => this.#seek(answer.at_ms));
    head.append(button);
    const stages = new Map(answer.stages);
    const numbers = names.map((name) => stages.get(name) ?? null);
    const shown = [answer.total_ms, ...(hasHeard ? [answer.heard_ms] : []), ...numbers];
    const bar = element("td", "bar");
    bar.append(this.#bar(answer, names, longest_ms));
    row.append(head, bar, ...shown.map((ms) => element("td", "", ms === null ? "–" : `${Math.round(ms)} ms`)));
    return row;
  }

  /**
   * @param {Answer} answer
   * @param {string[]} names
   * @param {number} longest_ms
   */
  #bar(answer, names, longest_ms) {
    const bar = element("div");
    bar.ariaHidden = "true";
    bar.addEventListener("click", () => this.#seek(answer.at_ms));
    /** @type {(ms: number) => string} */
    const share = (ms) => `${((100 * Math.max(0, ms)) / longest_ms).toFixed(2)}%`;
    const parts = answer.stages.length ? answer.stages : /** @type {[string, number][]} */ ([["", answer.total_ms]]);
    for (const [name, ms] of parts) {
      const piece = swatch(names.indexOf(name));
      piece.style.inlineSize = share(ms);
      piece.title = `${name ? stageTitle(name) : t("rec_at_server")}: ${Math.round(ms)} ms`;
      bar.append(piece);
    }
    if (answer.heard_ms !== null) {
      const ear = element("u", "ear");
      ear.style.insetInlineStart = share(answer.heard_ms);
      ear.title = `${t("rec_at_ear")}: ${answer.heard_ms} ms`;
      bar.append(ear);
    }
    return bar;
  }
}

/** @param {number} place of a stage; -1 for a latency without stages */
function swatch(place) {
  const made = element("i");
  made.dataset.stage = String(place < 0 ? COLOURS - 1 : place % COLOURS);
  return made;
}

/** @param {string} name */
function stageTitle(name) {
  return tIfKnown(`span_${name}`, name.replaceAll("_", " "));
}
