// Switch by which an operator pins the recordings of a session, so that no retention removes them. Who is no operator does not see
// it. It is read when the recordings are opened.

import { operator } from "./admin_api.js";
import { part, showNotice } from "./element.js";
import { messageOf } from "./guards.js";
import { ApiError } from "./session_api.js";

/** @import { SessionApi } from "./session_api.js" */

export class RecordingsPin {
  #api;
  #row;
  #box;
  #notice;

  /**
   * @param {SessionApi} api
   * @param {HTMLDetailsElement} fold contains the switch
   */
  constructor(api, fold) {
    this.#api = api;
    this.#row = part("pin-row", HTMLElement, fold);
    this.#box = part("pin", HTMLInputElement, fold);
    this.#notice = part("pin-notice", HTMLElement, fold);
    this.#box.addEventListener("change", () => this.#change());
    fold.addEventListener("toggle", () => fold.open && this.#read());
  }

  async #read() {
    // A server that is away is said elsewhere on the page.
    const { is_operator: isOperator } = await operator().catch(() => ({ is_operator: false }));
    if (!isOperator) return;
    await this.#reported(async () => {
      this.#box.checked = await this.#api.isPinned();
      this.#row.hidden = false;
    });
  }

  async #change() {
    const isPinned = this.#box.checked;
    this.#box.disabled = true;
    if (!(await this.#reported(() => this.#api.pin(isPinned)))) this.#box.checked = !isPinned;
    this.#box.disabled = false;
  }

  /**
   * Do something at the server; return false where it refuses, and show why.
   *
   * @param {() => Promise<void>} act
   */
  async #reported(act) {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showNotice(this.#notice, messageOf(error), { bad: true });
      return false;
    }
    showNotice(this.#notice, "");
    return true;
  }
}
