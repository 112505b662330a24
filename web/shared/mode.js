// How the bot listens: one turn at a time, or all the time. Decides which of the two the next call requests (by the address,
// the last choice, the server's default) and shows, in a full-duplex call, what the engine decides in every unit.

import { found, part } from "./element.js";
import { required } from "./guards.js";
import { t } from "./language.js";

/** @import { Key } from "./language.js" */
/** @import { Status, Votes } from "../types/server.js" */

const CHOSEN = "parley.mode";
const MODES = ["cascade", "duplex"];
const HISTORY = 150; // units: 12 seconds at 80 ms
/** @type {Record<string, Key>} */
const VOTES = { l: "vote_listens", s: "vote_speaks", b: "vote_backchannels", y: "vote_yields" };

const parts = {
  modes: part("modes", HTMLFieldSetElement),
  strip: part("votes", HTMLElement),
  now: part("vote", HTMLElement),
};

/** @returns {NodeListOf<HTMLInputElement>} */
const choices = () => parts.modes.querySelectorAll("input");

export class Mode {
  #mode = "cascade";
  #sees = { duplex: false, cascade: false };
  #reads = false;
  #votes = "";
  #offered = () => {};
  /** @type {Promise<void>} */
  #known = new Promise((resolve) => (this.#offered = resolve));

  constructor() {
    for (const choice of choices()) {
      choice.addEventListener("change", () => this.#choose(choice.value));
    }
  }

  /** The mode that the next call asks for. */
  get chosen() {
    return this.#mode;
  }

  /** True when the engine of the next call uses a camera. */
  get sees() {
    return this.#mode === "duplex" ? this.#sees.duplex : this.#sees.cascade;
  }

  /** True when the model of the next call reads pictures that are sent to it: one of calls by turns. */
  get reads() {
    return this.#reads && this.#mode !== "duplex";
  }

  /** Resolves once the abilities of the server are known: an earlier call waits for that. */
  get known() {
    return this.#known;
  }

  /**
   * Offer what the server can do; without a status that cannot be found out.
   *
   * @param {Partial<Pick<Status, "mode" | "omni" | "sees" | "cascade_sees" | "reads_pictures">>} [status]
   */
  offer({ mode, omni, sees, cascade_sees: cascadeSees, reads_pictures: reads } = {}) {
    this.#offered();
    this.#sees = { duplex: Boolean(sees), cascade: Boolean(cascadeSees) };
    this.#reads = Boolean(reads);
    if (!omni) return;
    const asked = location.pathname.replace(/\/+$/, "") === "/duplex" ? "duplex" : null;
    const chosen = asked ?? localStorage.getItem(CHOSEN) ?? mode;
    this.#mode = chosen && MODES.includes(chosen) ? chosen : "cascade";
    for (const choice of choices()) choice.checked = choice.value === this.#mode;
    parts.modes.hidden = false;
    document.body.dataset.mode = this.#mode;
  }

  /**
   * Keep the choice from being changed during a call.
   *
   * @param {boolean} busy
   */
  lock(busy) {
    parts.modes.disabled = busy;
    if (!busy) this.#forget();
  }

  /**
   * Show votes of the engine, the oldest first.
   *
   * @param {Votes} message
   */
  take({ votes, unit_ms: unitMs }) {
    this.#votes = (this.#votes + votes).slice(-HISTORY);
    parts.strip.hidden = false;
    draw(found("canvas", HTMLCanvasElement, parts.strip), this.#votes);
    parts.now.textContent = t(VOTES[this.#votes.slice(-1)] ?? "vote_listens", { unit: unitMs });
  }

  /** @param {string} mode */
  #choose(mode) {
    this.#mode = mode;
    document.body.dataset.mode = mode;
    localStorage.setItem(CHOSEN, mode);
  }

  #forget() {
    this.#votes = "";
    parts.strip.hidden = true;
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {string} votes
 */
function draw(canvas, votes) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const style = getComputedStyle(canvas);
  /** @type {Record<string, string>} */
  const colours = { s: "--accent", b: "--warn", y: "--bad", l: "--edge" };
  const paper = required(canvas.getContext("2d"), "the canvas");
  paper.setTransform(scale, 0, 0, scale, 0, 0);
  paper.clearRect(0, 0, width, height);
  const step = width / HISTORY;
  const from = HISTORY - votes.length;
  [...votes].forEach((vote, at) => {
    const tall = vote === "l" ? 0.2 : vote === "b" ? 0.6 : 1;
    paper.fillStyle = style.getPropertyValue(colours[vote] ?? "--edge");
    paper.fillRect((from + at) * step, height * (1 - tall), Math.max(1, step - 0.5), height * tall);
  });
}
