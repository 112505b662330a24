// Steps to another medium in a call: the offer with its buttons, and what the page does when the caller takes one. The server decides
// when a step is offered and over (docs/how-to/tiers.md).

import { part, write } from "./element.js";
import { t } from "./language.js";

/** @import { MediumName, StepChange } from "../types/server.js" */
/** @import { Source } from "./sight.js" */

/** @type {Partial<Record<MediumName, Source>>} */
const SOURCES = { video: "camera", screen: "screen" };
// The agent says that it goes on in writing; a voice that fails must not keep the caller here.
const LEAVE_MS = 10_000;

/**
 * @typedef {object} StepActions
 * @property {(source: Source) => Promise<boolean>} show shows a source; false when the browser does not
 * @property {() => void} hide shows nothing any more
 * @property {() => void} leave ends the call and goes on in writing
 * @property {(answer: "accepted" | "declined" | "failed") => void} report
 */

export class Steps {
  /** @type {StepChange | null} the step that is open */
  #step = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #leaving;
  #on;
  #parts = {
    bar: part("step", HTMLElement),
    text: part("step-text", HTMLElement),
    accept: part("step-accept", HTMLButtonElement),
    decline: part("step-decline", HTMLButtonElement),
  };

  /** @param {StepActions} on */
  constructor(on) {
    this.#on = on;
    this.#parts.accept.addEventListener("click", () => this.#accept());
    this.#parts.decline.addEventListener("click", () => on.report("declined"));
  }

  /**
   * Take a change of the tier.
   *
   * @param {StepChange} change
   */
  take(change) {
    const isOpen = change.tier === "step_offered" || change.tier === "stepping";
    this.#step = isOpen ? change : null;
    clearTimeout(this.#leaving);
    this.#leaving = undefined;
    if (change.tier === "stepping") this.#begin(change);
    this.show();
  }

  /** Note that the bot has stopped speaking. */
  quiet() {
    if (this.#leaving !== undefined) this.#leave();
  }

  /** Forget the step: the call is over. */
  close() {
    clearTimeout(this.#leaving);
    this.#leaving = undefined;
    this.#step = null;
    this.show();
  }

  /** Show the offer in the language of the page. */
  show() {
    const { bar, text, accept, decline } = this.#parts;
    const step = this.#step;
    // A camera opens by itself, and the way to writing too; a browser opens a screen for a button only.
    const asks = step !== null && (step.tier === "step_offered" || step.to === "screen");
    bar.hidden = !asks;
    if (!asks) return;
    write(text, t(`offer_${step.to}`));
    write(accept, t(`take_${step.to}`));
    write(decline, t("decline"));
  }

  /** @param {StepChange} step */
  #begin(step) {
    if (step.to === "video") this.#show("camera");
    else if (step.to === "voice") this.#on.hide();
    else if (step.to === "text") this.#leaving = setTimeout(() => this.#leave(), LEAVE_MS);
  }

  #accept() {
    const step = this.#step;
    if (!step) return;
    const source = SOURCES[step.to];
    // The click is what lets the browser ask; the camera would wait for the server's answer.
    if (source) this.#show(source);
    if (step.tier === "step_offered") this.#on.report("accepted");
  }

  /** @param {Source} source */
  async #show(source) {
    if (!(await this.#on.show(source))) this.#on.report("failed");
  }

  #leave() {
    clearTimeout(this.#leaving);
    this.#leaving = undefined;
    this.#on.leave();
  }
}
