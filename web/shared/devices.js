// Microphones, cameras and loudspeakers: which there are, which one the user has chosen, and which one that means now. A choice is
// kept in this browser, also while its device is absent: the browser's own choice takes its place until it is back.

import { kept } from "./sound_settings.js";
import { t } from "./language.js";

/** @typedef {"microphone" | "camera" | "loudspeaker"} Device */
/** @typedef {{ id: string, label: string }} Choice an empty id is the browser's own choice */

const KEPT = "parley.devices";
/** @type {Record<Device, MediaDeviceKind>} */
const KINDS = { microphone: "audioinput", camera: "videoinput", loudspeaker: "audiooutput" };
// Names under which Chromium lists a device once more.
const ALIASES = ["default", "communications"];
/** @type {Choice} */
const BROWSERS_CHOICE = { id: "", label: "" };

/**
 * Return the devices of a kind that can be chosen. Before the user has permitted a device, browsers list those of its kind without
 * id and name.
 *
 * @param {Pick<MediaDeviceInfo, "kind" | "deviceId" | "label">[]} found
 * @param {Device} device
 * @returns {Choice[]}
 */
export function choicesOf(found, device) {
  return found
    .filter(({ kind, deviceId, label }) => kind === KINDS[device] && deviceId && label && !ALIASES.includes(deviceId))
    .map(({ deviceId, label }) => ({ id: deviceId, label }));
}

export class Devices {
  #media;
  #changed;
  /** @type {MediaDeviceInfo[]} */
  #found = [];

  /**
   * @param {() => void} changed a device was plugged in or pulled out, or has a name now
   * @param {MediaDevices | null} [media] null in a page without https
   */
  constructor(changed, media = navigator.mediaDevices ?? null) {
    this.#changed = changed;
    this.#media = media;
    media?.addEventListener("devicechange", () => this.refresh());
  }

  /** Read the devices anew: after a permission was given, they have names. */
  async refresh() {
    if (!this.#media) return;
    this.#found = await this.#media.enumerateDevices();
    this.#changed();
  }

  /** @param {Device} device */
  choices(device) {
    return choicesOf(this.#found, device);
  }

  /**
   * Return what the user has chosen, whether or not it is there.
   *
   * @param {Device} device
   * @returns {Choice}
   */
  chosen(device) {
    const { id, label } = { ...BROWSERS_CHOICE, .../** @type {Partial<Choice> | undefined} */ (kept(KEPT)[device]) };
    return typeof id === "string" && typeof label === "string" ? { id, label } : BROWSERS_CHOICE;
  }

  /**
   * @param {Device} device
   * @param {string} id of one of its choices; empty for the browser's own choice
   */
  choose(device, id) {
    const choice = this.choices(device).find((each) => each.id === id) ?? BROWSERS_CHOICE;
    localStorage.setItem(KEPT, JSON.stringify({ ...kept(KEPT), [device]: choice }));
  }

  /**
   * Return true if the device that the user has chosen is known to be absent.
   *
   * @param {Device} device
   */
  misses(device) {
    const [{ id }, choices] = [this.chosen(device), this.choices(device)];
    return id !== "" && choices.length > 0 && !choices.some((each) => each.id === id);
  }

  /**
   * Return a text for the user if another device than the chosen one was opened; empty otherwise.
   *
   * @param {"microphone" | "camera"} device
   * @param {MediaStreamTrack} track of the opened one
   */
  otherThanChosen(device, track) {
    const { id, label } = this.chosen(device);
    const opened = track.getSettings().deviceId;
    if (!id || !opened || opened === id) return "";
    return t("device_absent", { chosen: label, used: track.label });
  }
}
