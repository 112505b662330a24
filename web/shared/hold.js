// Hold of a call: the caller pauses it and goes on. The server says whether a call can be paused, and when it is; the bot is silent and
// hears nothing meanwhile (docs/reference/serving.md).

import { part, write } from "./element.js";
import { t } from "./language.js";

/** @import { HoldState } from "../types/server.js" */

export class Hold {
  #report;
  #changed;
  /** @type {HoldState | null} null: this call cannot be paused */
  #state = null;
  #parts = {
    bar: part("hold", HTMLElement),
    text: part("hold-text", HTMLElement),
    switch: part("hold-switch", HTMLButtonElement),
  };

  /**
   * @param {(isOn: boolean) => void} report requests a hold, or its end
   * @param {() => void} changed called when the server reports another state
   */
  constructor(report, changed) {
    this.#report = report;
    this.#changed = changed;
    this.#parts.switch.addEventListener("click", () => this.#report(!this.isOn));
  }

  /** True while the call is on hold. */
  get isOn() {
    return Boolean(this.#state?.is_on);
  }

  /**
   * Take the state that the server reports.
   *
   * @param {HoldState} state
   */
  take(state) {
    this.#state = state;
    this.#changed();
  }

  /** Forget the state: the call is over. */
  close() {
    this.#state = null;
  }

  /**
   * Show the button, and what a hold means while it lasts, in the language of the page.
   *
   * @param {{ isUp: boolean }} call
   */
  show({ isUp }) {
    const { bar, text, switch: button } = this.#parts;
    const minutes = Math.max(1, Math.round((this.#state?.most_s ?? 0) / 60));
    bar.hidden = !isUp || this.#state === null;
    write(text, this.isOn ? t("held_for", { minutes }) : "");
    write(button, t(this.isOn ? "resume_call" : "hold_call"));
  }
}
