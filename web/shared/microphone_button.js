// The button of the microphone: mutes it, is held to talk, or asks for a microphone where there is none. Shows which of them it does.

import { part } from "./element.js";
import { t } from "./language.js";
import { SPACE_KEY } from "./shortcuts.js";

/**
 * @typedef {object} Shown
 * @property {boolean} isUp there is a call
 * @property {boolean} deaf there is no microphone
 * @property {boolean} isMuted
 * @property {boolean} pushes push to talk
 * @property {boolean} isHeld
 */

export class MicrophoneButton {
  #button;
  #caption = part("microphone-caption", HTMLElement);

  /** @param {HTMLButtonElement} button */
  constructor(button) {
    this.#button = button;
  }

  /** @param {Shown} shown */
  show({ isUp, deaf, isMuted, pushes, isHeld }) {
    document.body.dataset.microphone = deaf ? "none" : pushes ? (isHeld ? "held" : "released") : isMuted ? "muted" : "on";
    // The pressed state says that it is muted, or held: a name that changes too would say the opposite.
    const isOff = deaf && isUp;
    const [name, caption] = isOff
      ? /** @type {const} */ (["turn_on_microphone", "state_deaf"])
      : pushes
        ? /** @type {const} */ (["hold_to_talk", "hold"])
        : /** @type {const} */ (["mute_microphone", isMuted ? "unmute" : "mute"]);
    const button = this.#button;
    button.setAttribute("aria-label", t(name));
    button.setAttribute("aria-pressed", String(!deaf && (pushes ? isHeld : isMuted)));
    button.setAttribute("aria-keyshortcuts", pushes && !isOff ? SPACE_KEY : "M");
    button.title = t(pushes && !isOff ? "hold_title" : isOff ? "microphone_title" : "mute_title");
    button.disabled = !isUp;
    this.#caption.textContent = t(caption);
  }
}
