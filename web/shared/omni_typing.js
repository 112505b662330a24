// Typed text and pictures in a conversation of full duplex: the field, the pictures that go with it, and what is sent. Shown where the
// engine takes text; pictures only where it sees.

import { Attachments } from "./attachments.js";
import { part } from "./element.js";

/** @import { Attached, Prepared } from "../types/server.js" */

// Four of them, with a second of sound, are below what the server takes in one message.
const MOST_CHARS = 700_000;

const parts = {
  form: part("typing", HTMLFormElement),
  typed: part("typed", HTMLInputElement),
  send: part("send", HTMLButtonElement),
  attach: part("attach", HTMLElement),
  files: part("files", HTMLInputElement),
  list: part("attached", HTMLElement),
};

/**
 * @typedef {object} TypingHandlers
 * @property {(text: string, pictures: Attached[]) => boolean} send returns whether it was sent
 * @property {(problem: string) => void} refused why a picture was not taken; empty where the last ones were
 */

export class OmniTyping {
  #on;
  #attachments;
  #sees = false;

  /** @param {TypingHandlers} on */
  constructor(on) {
    this.#on = on;
    this.#attachments = new Attachments(parts.list, (problem) => this.#changed(problem), { mostChars: MOST_CHARS });
    parts.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    parts.typed.addEventListener("input", () => this.#show());
    parts.files.addEventListener("change", () => {
      this.#attachments.add([...(parts.files.files ?? [])]);
      parts.files.value = "";
    });
    parts.typed.addEventListener("paste", (event) => this.#attach(event, event.clipboardData));
    parts.form.addEventListener("dragover", (event) => event.preventDefault());
    parts.form.addEventListener("drop", (event) => this.#attach(event, event.dataTransfer));
    this.offer(null);
  }

  /**
   * Offer what the engine of a conversation takes.
   *
   * @param {Prepared | null} facts null without a conversation
   */
  offer(facts) {
    const takes = facts?.takes ?? [];
    this.#sees = takes.includes("pictures");
    parts.form.hidden = !takes.includes("text");
    this.#show();
  }

  /**
   * Let the user send, or no longer: while the conversation is paused or its connection is lost, nothing is taken.
   *
   * @param {boolean} isUp
   */
  permit(isUp) {
    parts.typed.readOnly = !isUp;
    this.#show();
  }

  get #pictures() {
    return this.#sees && !this.#attachments.empty;
  }

  #submit() {
    const text = parts.typed.value.trim();
    if (parts.typed.readOnly || (!text && !this.#pictures)) return;
    const pictures = this.#sees ? this.#attachments.take() : [];
    if (this.#on.send(text, pictures)) parts.typed.value = "";
    else this.#attachments.putBack(pictures);
    this.#show();
  }

  /** @param {string} problem */
  #changed(problem) {
    this.#on.refused(problem);
    this.#show();
  }

  #show() {
    parts.attach.hidden = !this.#sees;
    parts.list.hidden = !this.#pictures;
    parts.send.disabled = parts.typed.readOnly || (!parts.typed.value.trim() && !this.#pictures);
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} given
   */
  #attach(event, given) {
    const files = [...(given?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    if (this.#sees) this.#attachments.add(files);
  }
}
