// Overlaps, cut and resumed replies of a recorded call: the legend of what the waveform marks, which opens a list of them in words.

import { cutsOf, overlapsOf } from "./call_facts.js";
import { clockOf } from "./clock_text.js";
import { element } from "./element.js";
import { t, tIfKnown } from "./language.js";
import { blocksOf } from "./waveform.js";

/** @import { RecordingDetail } from "../types/server.js" */

const LIST_ITEMS = 500;

/** @typedef {{ at_ms: number, text: string, unheard: string }} Moment */

export class CallMoments {
  #legend = element("summary", "legend");
  #fold = element("details", "moments");
  #list = element("ol");
  #seek;
  /** @type {Moment[]} */
  #moments = [];
  /** @type {RecordingDetail | null} */
  #call = null;

  /**
   * @param {HTMLElement} root gets the legend and the list
   * @param {(at_ms: number) => void} seek moves the player to a time of the call
   */
  constructor(root, seek) {
    this.#seek = seek;
    this.#legend.dataset.role = "wave-legend";
    this.#fold.dataset.role = "moments";
    this.#list.tabIndex = 0;
    this.#fold.addEventListener("toggle", () => this.#fill());
    root.append(this.#fold);
  }

  /** @param {RecordingDetail} call that was chosen */
  show(call) {
    this.#call = call;
    const overlaps = overlapsOf(blocksOf(call.events));
    const cuts = cutsOf(call.events);
    const resumed = cuts.filter((cut) => cut.resumed_ms !== null);
    const both_s = overlaps.reduce((sum, each) => sum + each.end_ms - each.start_ms, 0) / 1_000;
    const counts = /** @type {const} */ ([
      ["overlap", t("rec_overlaps", { count: overlaps.length, seconds: both_s.toFixed(1) }), overlaps.length],
      ["cut", t("rec_cuts", { count: cuts.length }), cuts.length],
      ["resumed", t("rec_resumed", { count: resumed.length }), resumed.length],
    ]);
    this.#legend.replaceChildren(
      ...counts.filter(([, , count]) => count).map(([name, text]) => {
        const item = element("span", "", text);
        item.dataset.mark = name;
        return item;
      }),
    );
    this.#moments = [
      ...overlaps.map(({ start_ms, end_ms }) => ({
        at_ms: start_ms,
        text: t("rec_overlap", { ms: Math.round(end_ms - start_ms) }),
        unheard: "",
      })),
      ...cuts.map((cut) => ({ at_ms: cut.at_ms, text: cutText(cut.reason, cut.voice_ms), unheard: cut.unheard })),
      ...resumed.map((cut) => ({ at_ms: cut.resumed_ms ?? 0, text: t("rec_resume"), unheard: "" })),
    ].sort((one, other) => one.at_ms - other.at_ms);
    this.#fold.hidden = !this.#moments.length;
    this.#list.replaceChildren();
    this.#list.ariaLabel = t("rec_moments_label");
    this.#fold.replaceChildren(this.#legend, this.#list);
    this.#fill();
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (this.#call) this.show(this.#call);
  }

  /** Fill the list when it is to be seen. */
  #fill() {
    if (!this.#fold.open || this.#list.childElementCount) return;
    this.#list.append(...this.#moments.slice(0, LIST_ITEMS).map((moment) => this.#item(moment)));
  }

  /** @param {Moment} moment */
  #item(moment) {
    const row = element("li");
    const button = element("button", "", clockOf(moment.at_ms));
    button.type = "button";
    button.addEventListener("click", () => this.#seek(moment.at_ms));
    row.append(button, ` ${moment.text}`);
    if (moment.unheard) row.append(` ${t("not_heard")} `, element("q", "", moment.unheard));
    return row;
  }
}

/**
 * @param {string} reason
 * @param {number | null} voice_ms
 */
function cutText(reason, voice_ms) {
  const why = tIfKnown(`rec_cut_${reason}`, reason || t("rec_cut_left"));
  return voice_ms === null ? t("rec_cut", { why }) : t("rec_cut_after", { why, ms: voice_ms });
}
