// The column of bubbles: makes them, keeps so many of them, and stays at the end while the person reads the end. What is in a
// bubble is left to the transcript of a call and to the record of a session.

import { element } from "./element.js";

// Nearer to the end than this counts as reading the end.
const PINNED_PX = 60;
// Screen readers learn of a change some time after it.
const HUSH_MS = 500;

export class Bubbles {
  #root;
  #keep;
  #pinned = true; // the end is in view: the person has not scrolled up to read
  #filling = false;
  #height = 0;
  #hushed = 0;

  /**
   * @param {Element} root the log
   * @param {number} keep a call of hours keeps its last bubbles
   */
  constructor(root, { keep = Infinity } = {}) {
    this.#root = root;
    this.#keep = keep;
    root.addEventListener("scroll", () => {
      if (root.clientHeight !== this.#height) return; // a notice came or went: not the person, and the end is shown below
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

  /** Whether the person reads the end. */
  get pinned() {
    return this.#pinned;
  }

  /** A bubble that is nowhere yet. */
  make(who) {
    const item = element("div", `turn ${who}`);
    item.dataset.role = `${who}-turn`;
    const bubble = element("p", "bubble");
    const under = element("div", "under");
    item.append(element("span", "unseen", who === "user" ? "You: " : "Parley: "), bubble, under);
    return { item, bubble, under };
  }

  /** A line about the conversation itself, nowhere yet. */
  makeNote(text) {
    const line = element("p", "note", text);
    line.dataset.role = "note";
    return line;
  }

  /** Puts a node before another one, or at the end. */
  put(node, before = null) {
    this.#root.insertBefore(node, before);
    while (this.#root.childElementCount > this.#keep) this.#root.firstElementChild.remove();
    this.follow();
  }

  /** Puts what was said before in front of what is there; what the person reads stays where it is. */
  prepend(nodes) {
    this.#hush();
    const { scrollTop, scrollHeight } = this.#root;
    this.#root.prepend(...nodes);
    if (!this.#pinned) this.#root.scrollTop = scrollTop + this.#root.scrollHeight - scrollHeight;
    this.follow();
  }

  /** Shows the end, if the person was reading the end. */
  follow() {
    if (this.#pinned && !this.#filling) this.#root.scrollTop = this.#root.scrollHeight;
  }

  /** Shows the end, wherever the person was reading. */
  pin() {
    this.#pinned = true;
    this.follow();
  }

  /** While a whole conversation is put in it is not scrolled for each bubble. */
  fill(filling) {
    this.#filling = filling;
    this.#root.setAttribute("aria-busy", String(filling));
    this.follow();
  }

  /** What was said long ago is not read out as if it were said now. */
  #hush() {
    this.#root.setAttribute("aria-live", "off");
    clearTimeout(this.#hushed);
    this.#hushed = setTimeout(() => this.#root.setAttribute("aria-live", "polite"), HUSH_MS);
  }
}
