// Choice among several microphones or cameras, kept in this browser. Shown only where there is something to choose: browsers name
// their devices once one of them is open.

import { element } from "./element.js";

/** @typedef {"audioinput" | "videoinput"} DeviceKind */

/**
 * Return the devices of a kind that can be chosen, in the order of the browser. One without an id is a placeholder.
 *
 * @param {Pick<MediaDeviceInfo, "kind" | "deviceId" | "label">[]} devices
 * @param {DeviceKind} kind
 */
export function choicesOf(devices, kind) {
  return devices.filter((each) => each.kind === kind && each.deviceId !== "");
}

export class DeviceChoice {
  #kind;
  #list;
  #box;
  #key;
  /** @type {string[]} ids of the devices */
  #ids = [];
  #current = "";

  /**
   * @param {DeviceKind} kind
   * @param {HTMLSelectElement} list
   * @param {HTMLElement} box contains the list and its label
   * @param {(device: string) => void} chosen
   */
  constructor(kind, list, box, chosen) {
    this.#kind = kind;
    this.#list = list;
    this.#box = box;
    this.#key = `parley.${kind}`;
    list.addEventListener("change", () => {
      localStorage.setItem(this.#key, list.value);
      chosen(list.value);
    });
    navigator.mediaDevices?.addEventListener("devicechange", () => this.refresh());
    this.refresh();
  }

  /** Id of the chosen device; empty for the browser's own choice. */
  get device() {
    return localStorage.getItem(this.#key) ?? "";
  }

  get count() {
    return this.#ids.length;
  }

  /** Id of the device after the one that is open. */
  get next() {
    return this.#ids[(this.#ids.indexOf(this.#current) + 1) % this.#ids.length] ?? "";
  }

  /**
   * Note that a stream was opened: its device is the one that is shown as chosen.
   *
   * @param {MediaStream} stream
   */
  async opened(stream) {
    this.#current = stream.getTracks()[0]?.getSettings().deviceId ?? "";
    await this.refresh();
  }

  /** Read the devices anew. */
  async refresh() {
    const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
    const choices = choicesOf(devices, this.#kind);
    this.#ids = choices.map(({ deviceId }) => deviceId);
    this.#list.replaceChildren(
      ...choices.map(({ deviceId, label }, place) => {
        const option = element("option", "", label || String(place + 1));
        option.value = deviceId;
        return option;
      }),
    );
    const shown = [this.#current, this.device].find((id) => this.#ids.includes(id));
    if (shown !== undefined) this.#list.value = shown;
    this.#box.hidden = choices.length < 2;
  }
}
