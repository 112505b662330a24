// Pictures in a call by turns: chosen, pasted or dropped as on the page of a conversation, and sent before the text that goes with
// them. Without a text they wait for the caller's next words. The server reads each one and refuses what is none; the picture then
// leaves the conversation that is shown.

import { Attachments, pictureOf } from "./attachments.js";
import { element, part } from "./element.js";
import { t, worded } from "./language.js";

/** @import { Attached, RtviMessage } from "../types/server.js" */
/** @import { Bubble, Bubbles } from "./bubbles.js" */
/** @import { Call } from "./call.js" */

// One message of the data channel holds a picture: the server takes messages of 262,144 bytes.
const MOST_CHARS = 240_000;
// A refusal comes at once: older messages need not be remembered.
const MOST_SENT = 16;

const parts = {
  form: part("typing", HTMLFormElement),
  typed: part("typed", HTMLInputElement),
  attach: part("attach", HTMLElement),
  files: part("files", HTMLInputElement),
  list: part("attached", HTMLElement),
};

export class CallPictures {
  #bubbles;
  #attachments;
  #isOffered = false;
  /** @type {Map<string, { bubble: Bubble, image: HTMLElement }>} by the id of the message that has it */
  #sent = new Map();

  /**
   * @param {Bubbles} bubbles
   * @param {(problem: string) => void} changed called after each change, with the reason why a picture was not taken
   */
  constructor(bubbles, changed) {
    this.#bubbles = bubbles;
    this.#attachments = new Attachments(parts.list, changed, { mostChars: MOST_CHARS });
    parts.files.addEventListener("change", () => {
      this.#attachments.add([...(parts.files.files ?? [])]);
      parts.files.value = "";
    });
    parts.typed.addEventListener("paste", (event) => this.#attach(event, event.clipboardData));
    parts.form.addEventListener("dragover", (event) => event.preventDefault());
    parts.form.addEventListener("drop", (event) => this.#attach(event, event.dataTransfer));
  }

  /** True when no picture goes with the next text. */
  get empty() {
    return !this.#isOffered || this.#attachments.empty;
  }

  /**
   * Offer pictures where the model of the next call reads them.
   *
   * @param {boolean} reads
   */
  offer(reads) {
    this.#isOffered = reads;
    parts.attach.hidden = !reads;
    parts.list.hidden = this.empty;
  }

  /**
   * Send the pictures and show them as a part of the conversation.
   *
   * @param {Call} call
   * @param {{ withText: boolean }} options `withText`: their text follows
   */
  send(call, { withText }) {
    if (this.empty) return;
    const bubble = this.#bubbles.make("user");
    bubble.item.dataset.final = "true";
    for (const picture of this.#attachments.take()) {
      const image = pictureOf(picture);
      bubble.bubble.append(image);
      this.#sent.set(call.show(picture), { bubble, image });
    }
    for (const id of [...this.#sent.keys()].slice(0, -MOST_SENT)) this.#sent.delete(id);
    if (!withText) bubble.under.append(worded(element("span"), () => t("picture_waits")));
    this.#bubbles.put(bubble.item);
  }

  /**
   * Handle an RTVI message, if it refuses a picture.
   *
   * @param {RtviMessage} message
   */
  take(message) {
    if (message.type !== "error-response" || message.id === undefined) return;
    const refused = this.#sent.get(message.id);
    this.#sent.delete(message.id);
    refused?.image.remove();
    if (refused && !refused.bubble.bubble.childElementCount) refused.bubble.item.remove();
  }

  /** Forget which message had which picture: the connection is over, and the next one counts its messages anew. */
  close() {
    this.#sent.clear();
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} given
   */
  #attach(event, given) {
    const files = [...(given?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    if (this.#isOffered) this.#attachments.add(files);
  }
}
