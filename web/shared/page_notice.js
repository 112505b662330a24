// The line of the page of a call that says what happens. What concerns a device takes back only its own text.

import { showNotice } from "./element.js";

export class PageNotice {
  #root;
  #ofDevice = "";

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Show a line; an empty text removes it.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  say(text, { bad = false } = {}) {
    showNotice(this.#root, text, { bad });
  }

  /**
   * Show a line on a device. An empty text removes such a line, and no other: a place in the queue and a lost connection stay.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  sayOfDevice(text, options) {
    if (text || this.#root.textContent === this.#ofDevice) this.say(text, options);
    this.#ofDevice = text;
  }
}
