// The panel "Sound and devices", and the list of shortcuts: two dialogs. Show what is chosen and pass on what the user changes;
// what it means for a call is decided elsewhere (call_sound.js, devices.js, push_to_talk.js).

import { element, part, showNotice } from "./element.js";
import { t } from "./language.js";
import { SoundFile } from "./sound_file.js";

/** @import { CallSound } from "./call_sound.js" */
/** @import { Device, Devices } from "./devices.js" */
/** @import { SoundSettings, SoundValues } from "./sound_settings.js" */

const parts = {
  panel: part("sound-panel", HTMLDialogElement),
  open: part("sound-open", HTMLButtonElement),
  notice: part("sound-notice", HTMLElement),
  hint: part("names-hint", HTMLElement),
  microphone: part("choose-microphone", HTMLSelectElement),
  camera: part("choose-camera", HTMLSelectElement),
  cameraField: part("camera-field", HTMLElement),
  loudspeaker: part("choose-loudspeaker", HTMLSelectElement),
  loudspeakerField: part("loudspeaker-field", HTMLElement),
  gain: part("gain", HTMLInputElement),
  gainValue: part("gain-value", HTMLElement),
  volume: part("volume", HTMLInputElement),
  volumeField: part("volume-field", HTMLElement),
  volumeValue: part("volume-value", HTMLElement),
  pushToTalk: part("push-to-talk", HTMLInputElement),
  chime: part("chime", HTMLInputElement),
  shortcuts: part("shortcuts", HTMLDialogElement),
  shortcutsOpen: part("shortcuts-open", HTMLButtonElement),
  shortcutsOn: part("shortcuts-on", HTMLInputElement),
};

/** @type {Record<Device, HTMLSelectElement>} */
const LISTS = { microphone: parts.microphone, camera: parts.camera, loudspeaker: parts.loudspeaker };

export class SoundPanel {
  #sound;
  #devices;
  #settings;
  #on;
  /** @type {SoundFile | null} */
  #file;

  /**
   * @param {{ sound: CallSound, devices: Devices, settings: SoundSettings, playsFiles?: boolean }} page `playsFiles`: the panel has a
   *   file in place of the microphone
   * @param {{ chosen: (device: Device) => void }} on another device was chosen
   */
  constructor({ sound, devices, settings, playsFiles = true }, on) {
    this.#sound = sound;
    this.#devices = devices;
    this.#settings = settings;
    this.#on = on;
    this.#file = playsFiles ? new SoundFile(sound, (text, options) => this.say(text, options)) : null;
    for (const dialog of [parts.panel, parts.shortcuts]) letGo(dialog);
    parts.open.addEventListener("click", () => this.open());
    parts.shortcutsOpen.addEventListener("click", () => this.openShortcuts());
    for (const device of /** @type {Device[]} */ (Object.keys(LISTS))) {
      LISTS[device].addEventListener("change", () => this.#choose(device));
    }
    parts.gain.addEventListener("input", () => this.#set({ gain_db: parts.gain.valueAsNumber }));
    parts.volume.addEventListener("input", () => this.#set({ volume_percent: parts.volume.valueAsNumber }));
    parts.pushToTalk.addEventListener("change", () => this.#set({ pushToTalk: parts.pushToTalk.checked }));
    parts.chime.addEventListener("change", () => this.#set({ chime: parts.chime.checked }));
    parts.shortcutsOn.addEventListener("change", () => this.#set({ shortcuts: parts.shortcutsOn.checked }));
    this.#showValues();
    this.showDevices();
  }

  open() {
    this.say("");
    this.#devices.refresh();
    parts.panel.showModal();
  }

  /** Open the list of shortcuts, or close it. */
  openShortcuts() {
    if (parts.shortcuts.open) parts.shortcuts.close();
    else parts.shortcuts.showModal();
  }

  /**
   * Show a line here, where the page's own is covered.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  say(text, options) {
    showNotice(parts.notice, text, options);
  }

  /**
   * Show what is possible now.
   *
   * @param {{ inCall: boolean, sees: boolean }} page `sees`: the bot can be shown a camera
   */
  show({ inCall, sees }) {
    parts.cameraField.hidden = !sees;
    this.#file?.show({ inCall });
  }

  /** Show the devices that there are, in the page's language. */
  showDevices() {
    for (const device of /** @type {Device[]} */ (Object.keys(LISTS))) this.#fill(device);
    parts.loudspeakerField.hidden = !this.#sound.choosesLoudspeaker;
    parts.hint.hidden = this.#devices.choices("microphone").length > 0;
    this.#showValues();
    this.#file?.show();
  }

  /** @param {Device} device */
  #fill(device) {
    const chosen = this.#devices.chosen(device);
    const choices = [{ id: "", label: t("browsers_choice") }, ...this.#devices.choices(device)];
    if (this.#devices.misses(device)) choices.push({ id: chosen.id, label: t("not_connected", { name: chosen.label }) });
    const options = choices.map(({ id, label }) => {
      const option = element("option", "", label);
      option.value = id;
      return option;
    });
    LISTS[device].replaceChildren(...options);
    LISTS[device].value = choices.some(({ id }) => id === chosen.id) ? chosen.id : "";
  }

  /** @param {Device} device */
  #choose(device) {
    this.say("");
    this.#devices.choose(device, LISTS[device].value);
    this.#fill(device);
    this.#on.chosen(device);
  }

  /** @param {Partial<SoundValues>} changed */
  #set(changed) {
    this.#settings.set(changed);
    this.#sound.adjust();
    this.#showValues();
  }

  #showValues() {
    const { gain_db, volume_percent, pushToTalk, chime, shortcuts } = this.#settings.values;
    parts.gain.valueAsNumber = gain_db;
    const gain = `${gain_db > 0 ? "+" : ""}${gain_db}`.replace("-", "−");
    describe(parts.gain, parts.gainValue, t("decibels", { gain }));
    parts.volume.valueAsNumber = volume_percent;
    describe(parts.volume, parts.volumeValue, t("percent", { share: volume_percent }));
    // Phones leave the volume to their own keys: there it cannot be set.
    parts.volumeField.hidden = !setsVolume();
    parts.pushToTalk.checked = pushToTalk;
    parts.chime.checked = chime;
    parts.shortcutsOn.checked = shortcuts;
  }
}

/**
 * Write the value of a slider, for the eye and for a screen reader.
 *
 * @param {HTMLInputElement} slider
 * @param {HTMLElement} shown
 * @param {string} value
 */
function describe(slider, shown, value) {
  slider.setAttribute("aria-valuetext", value);
  shown.textContent = value;
}

/**
 * Close a dialog by its button, and by a click outside of it.
 *
 * @param {HTMLDialogElement} dialog
 */
function letGo(dialog) {
  dialog.addEventListener("click", ({ target }) => {
    const button = target instanceof Element && target.closest("[data-close]");
    if (target === dialog || button) dialog.close();
  });
}

function setsVolume() {
  const probe = new Audio();
  probe.volume = 0.5;
  return probe.volume === 0.5;
}
