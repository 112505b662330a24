// Column of bubbles: makes them, keeps a limited number, and stays at the end while the user reads the end. The content of a
// bubble belongs to the transcript of a call and to the record of a session.

import { element } from "./element.js";
import { reword, t, worded } from "./language.js";

/** @import { Key } from "./language.js" */

// Nearer to the end than this counts as reading the end.
const PINNED_PX = 60;
// Screen readers learn of a change some time after it.
const HUSH_MS = 500;

/** @typedef {{ item: HTMLElement, bubble: HTMLElement, under: HTMLElement, name: HTMLElement }} Bubble `name` is for screen readers */
/** @typedef {{ user: Key, bot: Key, human: Key }} Names */

/** @type {Names} */
const USUAL = { user: "you", bot: "parley", human: "colleague" };

export class Bubbles {
  #root;
  #keep;
  #names;
  #pinned = true; // the end is in view: the user has not scrolled up to read
  #filling = false;
  #height = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #hushed;

  /**
   * @param {HTMLElement} root the log
   * @param {{ keep?: number, names?: Names }} [options] `keep`: a call of hours keeps its last bubbles
   */
  constructor(root, { keep = Infinity, names = USUAL } = {}) {
    this.#root = root;
    this.#keep = keep;
    this.#names = names;
    root.addEventListener("scroll", () => {
      if (root.clientHeight !== this.#height) return; // a notice came or went: the user did not scroll, and the end is shown below
      this.#pinned = root.scrollHeight - root.scrollTop - root.clientHeight < PINNED_PX;
    });
    new ResizeObserver(() => {
      this.#height = root.clientHeight;
      this.follow();
    }).observe(root);
  }

  get empty() {
    return !this.#root.childElementCount;
  }

  /** True while the user reads the end. */
  get pinned() {
    return this.#pinned;
  }

  /**
   * Make a bubble that is not on the page yet.
   *
   * @param {"user" | "bot"} who
   * @returns {Bubble}
   */
  make(who) {
    const item = element("div", `turn ${who}`);
    item.dataset.role = `${who}-turn`;
    const bubble = element("p", "bubble");
    const under = element("div", "under");
    const name = this.#name(element("span", "unseen"), who);
    item.append(name, bubble, under);
    return { item, bubble, under, name };
  }

  /**
   * Show that a human said it in the place of the bot.
   *
   * @param {Bubble} said
   */
  markHuman({ item, name }) {
    item.classList.add("human");
    item.dataset.by = "human";
    this.#name(name, "human");
  }

  /**
   * @param {HTMLElement} node
   * @param {keyof Names} who
   */
  #name(node, who) {
    return worded(node, () => `${t(this.#names[who])}: `);
  }

  /**
   * Make a line about the conversation itself that is not on the page yet.
   *
   * @param {() => string} words in the language of the page
   */
  makeNote(words) {
    const line = worded(element("p", "note"), words);
    line.dataset.role = "note";
    return line;
  }

  /**
   * Put a node before another one, or at the end.
   *
   * @param {Node} node
   * @param {Node | null} [before]
   */
  put(node, before = null) {
    this.#root.insertBefore(node, before);
    while (this.#root.childElementCount > this.#keep) this.#root.firstElementChild?.remove();
    this.follow();
  }

  /**
   * Put earlier nodes before those on the page; what the user reads stays where it is.
   *
   * @param {Node[]} nodes
   */
  prepend(nodes) {
    this.#hush();
    // They may have been made in another language.
    for (const node of nodes) if (node instanceof Element) reword(node);
    const { scrollTop, scrollHeight } = this.#root;
    this.#root.prepend(...nodes);
    if (!this.#pinned) this.#root.scrollTop = scrollTop + this.#root.scrollHeight - scrollHeight;
    this.follow();
  }

  /** Show the end, if the user was reading the end. */
  follow() {
    if (this.#pinned && !this.#filling) this.#root.scrollTop = this.#root.scrollHeight;
  }

  /** Show the end, wherever the user was reading. */
  pin() {
    this.#pinned = true;
    this.follow();
  }

  /**
   * Begin or end putting in a whole conversation, which is not scrolled for each bubble.
   *
   * @param {boolean} filling
   */
  fill(filling) {
    this.#filling = filling;
    this.#root.setAttribute("aria-busy", String(filling));
    this.follow();
  }

  /** Keep screen readers from announcing old turns as if they were new. */
  #hush() {
    this.#root.setAttribute("aria-live", "off");
    clearTimeout(this.#hushed);
    this.#hushed = setTimeout(() => this.#root.setAttribute("aria-live", "polite"), HUSH_MS);
  }
}
