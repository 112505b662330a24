// Typed texts that are not answered yet, kept by the browser for this tab: a page that is loaded again still has them, with
// the key that makes a repeated request harmless. Without storage (a browser may forbid it) they live as long as the page.

export class Unsent {
  #name;
  /** @type {Record<string, string>} */
  #held;

  /** @param {string} sessionId */
  constructor(sessionId) {
    this.#name = `parley.unsent.${sessionId}`;
    this.#held = read(this.#name);
  }

  /** Texts as `[key, text]`, in the order in which they were typed. */
  get all() {
    return Object.entries(this.#held);
  }

  /**
   * @param {string} key
   * @param {string} text
   */
  keep(key, text) {
    this.#held[key] = text;
    this.#store();
  }

  /** @param {string} key */
  drop(key) {
    delete this.#held[key];
    this.#store();
  }

  /** Drop everything: the session is deleted. */
  forget() {
    this.#held = {};
    this.#store();
  }

  #store() {
    try {
      if (this.all.length) sessionStorage.setItem(this.#name, JSON.stringify(this.#held));
      else sessionStorage.removeItem(this.#name);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error; // forbidden or full
    }
  }
}

/**
 * @param {string} name
 * @returns {Record<string, string>}
 */
function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "{}");
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    return {};
  }
}
