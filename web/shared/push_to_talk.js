// Push to talk: the microphone is open only while the Space key or its button is held. Decides when it is held; whatever takes the
// key or the page away releases it, since a key whose release is not seen would leave the microphone open.

import { TAB_KEY, takesText } from "./shortcuts.js";

const SPACE = " ";
const CONTROLS = "a,button,input,select,summary,textarea,[contenteditable]";

export class PushToTalk {
  #button;
  #isReady;
  #changed;
  #on;
  #held = false;
  #navigates = false; // the user goes from control to control with the keyboard

  /**
   * @param {HTMLButtonElement} button of the microphone
   * @param {{ isOn: boolean, isReady: () => boolean, changed: () => void }} page `isReady`: there is a call with a microphone
   */
  constructor(button, { isOn, isReady, changed }) {
    this.#button = button;
    this.#on = isOn;
    this.#isReady = isReady;
    this.#changed = changed;
    const release = () => this.release();
    document.addEventListener("keydown", (event) => this.#onKeyDown(event));
    document.addEventListener("keyup", (event) => this.#onKeyUp(event));
    document.addEventListener("pointerdown", () => (this.#navigates = false), { capture: true });
    button.addEventListener("pointerdown", (event) => this.#onPointerDown(event));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(name, release);
    // On a phone a long press would open a menu.
    button.addEventListener("contextmenu", (event) => this.#on && event.preventDefault());
    window.addEventListener("blur", release);
    document.addEventListener("visibilitychange", release);
  }

  /** True in this mode. */
  get on() {
    return this.#on;
  }

  set on(isOn) {
    this.#on = isOn;
    this.#held = false;
    this.#changed();
  }

  get held() {
    return this.#held;
  }

  release() {
    if (!this.#held) return;
    this.#held = false;
    this.#changed();
  }

  #hold() {
    if (this.#held) return;
    this.#held = true;
    this.#changed();
  }

  /** @param {PointerEvent} event */
  #onPointerDown(event) {
    if (!this.#on || !this.#isReady() || event.button !== 0) return;
    // A finger that slides off the button still holds it.
    this.#button.setPointerCapture(event.pointerId);
    this.#hold();
  }

  /** @param {KeyboardEvent} event */
  #onKeyDown(event) {
    if (event.key === TAB_KEY) this.#navigates = true;
    if (!this.#isMine(event)) return;
    // Otherwise the page scrolls, or the button that was pressed last is pressed again.
    event.preventDefault();
    if (!event.repeat) this.#hold();
  }

  /** @param {KeyboardEvent} event */
  #onKeyUp(event) {
    if (event.key !== SPACE || !this.#held) return;
    event.preventDefault();
    this.release();
  }

  /** @param {KeyboardEvent} event */
  #isMine({ key, ctrlKey, altKey, metaKey, isComposing, target }) {
    if (key !== SPACE || ctrlKey || altKey || metaKey || isComposing) return false;
    if (!this.#on || !this.#isReady() || takesText(target) || !(target instanceof Element)) return false;
    if (target.closest("dialog")) return false;
    const control = target.closest(CONTROLS);
    // The button that began the call has the focus: there Space talks, and Enter hangs up.
    if (!control || control === this.#button || control.matches(".talk")) return true;
    return control instanceof HTMLButtonElement && !this.#navigates;
  }
}
