// What was typed and is not answered yet, kept by the browser for this tab: a page that is loaded again still has it, with the
// key that makes asking again harmless. Without storage (a browser may forbid it) it lives as long as the page.

export class Unsent {
  #name;
  #held;

  constructor(sessionId) {
    this.#name = `parley.unsent.${sessionId}`;
    this.#held = read(this.#name);
  }

  /** As `[key, text]`, in the order in which they were typed. */
  get all() {
    return Object.entries(this.#held);
  }

  keep(key, text) {
    this.#held[key] = text;
    this.#store();
  }

  drop(key) {
    delete this.#held[key];
    this.#store();
  }

  /** The session is deleted: nothing of it stays behind. */
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

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? {};
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    return {};
  }
}
