// What the bot says, in step with what is heard: a log of its turns, and subtitles over the picture. Words to come are faint, words that
// were never heard are struck out in the log and missing in the subtitles.

import { element, write } from "./element.js";
import { t } from "./language.js";

/** @import { ShownTurn, SpokenText } from "./spoken_text.js" */

const SUBTITLES = "parley.subtitles";
// A conversation of an hour keeps its last turns.
const KEEP = 200;

export class SpokenView {
  #log;
  #subtitles;
  #button;
  /** @type {Map<number, HTMLElement>} lines that may still change, by their turn */
  #lines = new Map();
  /** Turns up to this one no longer change. */
  #final = 0;
  #text = "";

  /**
   * @param {HTMLElement} log
   * @param {HTMLElement} subtitles
   * @param {HTMLButtonElement} button turns the subtitles on and off
   */
  constructor(log, subtitles, button) {
    this.#log = log;
    this.#subtitles = subtitles;
    this.#button = button;
    button.addEventListener("click", () => {
      localStorage.setItem(SUBTITLES, String(!this.#wanted));
      this.#write();
    });
    this.#write();
  }

  get #wanted() {
    return localStorage.getItem(SUBTITLES) !== "false";
  }

  /** End with the last words of a conversation; another one follows below. */
  end() {
    this.#lines.clear();
    this.#final = 0;
    this.#text = "";
    this.#write();
  }

  /**
   * Show the words of a moment.
   *
   * @param {SpokenText} spoken
   * @param {number} heardS time that is heard
   */
  show(spoken, heardS) {
    for (const turn of spoken.turns(heardS)) {
      if (turn.id > this.#final) this.#line(turn);
    }
    this.#text = spoken.subtitle(heardS);
    this.#write();
  }

  /**
   * Add a line that is not the bot's: what the user typed, or what happened.
   *
   * @param {HTMLElement} line
   */
  add(line) {
    this.#log.append(line);
    this.#trim();
  }

  #trim() {
    while (this.#log.childElementCount > KEEP) this.#log.firstElementChild?.remove();
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** @param {ShownTurn} turn */
  #line(turn) {
    let line = this.#lines.get(turn.id);
    if (!line) {
      line = element("p");
      this.#lines.set(turn.id, line);
      this.add(line);
    }
    const shown = JSON.stringify(turn);
    if (line.dataset.shown !== shown) {
      line.dataset.shown = shown;
      const rest = turn.rest && element(turn.isCut ? "s" : "span", turn.isCut ? "unheard" : "coming", turn.rest);
      const hint = turn.isCut && rest ? element("span", "unseen", ` ${t("not_heard")} `) : "";
      line.replaceChildren(turn.heard, hint, rest);
      this.#trim();
    }
    if (!turn.isFinal) return;
    delete line.dataset.shown;
    this.#lines.delete(turn.id);
    this.#final = turn.id;
  }

  #write() {
    this.#button.setAttribute("aria-pressed", String(this.#wanted));
    write(this.#subtitles, this.#wanted ? this.#text : "");
    this.#subtitles.hidden = !this.#subtitles.textContent;
  }
}
