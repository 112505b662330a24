// Last line of the page of a call: the names of the engines, and what to expect of the recogniser.

import { element } from "./element.js";
import { t } from "./language.js";

/** @import { Status } from "../types/server.js" */

export class EngineNames {
  #list;
  #hint;
  /** @type {Status | null} */
  #status = null;

  /**
   * @param {HTMLElement} list gets the names
   * @param {HTMLElement} hint is shown where only simple English is understood
   */
  constructor(list, hint) {
    this.#list = list;
    this.#hint = hint;
  }

  /** @param {Status} status of the server */
  show(status) {
    this.#status = status;
    this.draw();
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (!this.#status) return;
    const { deployment, stt, turn, llm, fallback, tts, omni } = this.#status;
    const answers = llm && fallback ? t("else", { first: llm, second: fallback }) : llm;
    /** @type {[string, string | null | undefined][]} */
    const named = [
      [t("engine_recogniser"), stt],
      [t("engine_turns"), turn],
      [t("engine_answers"), answers],
      [t("engine_voice"), tts],
      [t("engine_duplex"), omni],
      [t("engine_deployment"), deployment],
    ];
    this.#list.replaceChildren();
    for (const [stage, engine] of named) {
      if (!engine) continue;
      const item = element("span", "", `${stage} `);
      item.append(element("b", "", engine));
      this.#list.append(item, " ");
    }
    this.#hint.textContent = t("simple_english");
    this.#hint.hidden = stt !== "pocketsphinx";
  }
}
