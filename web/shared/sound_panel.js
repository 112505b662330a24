// The panel "Sound and devices", and the list of shortcuts: two dialogs. Show what is chosen and pass on what the user changes;
// what it means for a call is decided elsewhere (call_sound.js, devices.js, push_to_talk.js).

import { CallError } from "./call.js";
import { choosesLoudspeaker } from "./devices.js";
import { element, part, showNotice } from "./element.js";
import { required } from "./guards.js";
import { t } from "./language.js";
import { readSoundFile } from "./sound_source.js";

/** @import { CallSound } from "./call_sound.js" */
/** @import { Device, Devices } from "./devices.js" */
/** @import { SoundSettings, SoundValues } from "./sound_settings.js" */

const PROGRESS_MS = 250;

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
  file: part("file", HTMLInputElement),
  filePlay: part("file-play", HTMLButtonElement),
  fileProgress: part("file-progress", HTMLProgressElement),
  fileTime: part("file-time", HTMLElement),
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
  #inCall = false;
  /** @type {AudioBuffer | null} of the chosen file */
  #file = null;
  #reading = 0; // of the files that were chosen: the newest counts
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #progress;

  /**
   * @param {{ sound: CallSound, devices: Devices, settings: SoundSettings }} page
   * @param {{ chosen: (device: Device) => void }} on another device was chosen
   */
  constructor({ sound, devices, settings }, on) {
    this.#sound = sound;
    this.#devices = devices;
    this.#settings = settings;
    this.#on = on;
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
    parts.file.addEventListener("change", () => this.#read());
    parts.filePlay.addEventListener("click", () => this.#toggleFile());
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
    this.#inCall = inCall;
    parts.cameraField.hidden = !sees;
    this.#showFile();
  }

  /** Show the devices that there are, in the page's language. */
  showDevices() {
    for (const device of /** @type {Device[]} */ (Object.keys(LISTS))) this.#fill(device);
    parts.loudspeakerField.hidden = !choosesLoudspeaker();
    parts.hint.hidden = this.#devices.choices("microphone").length > 0;
    this.#showValues();
    this.#showFile();
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

  async #read() {
    const [file] = parts.file.files ?? [];
    const reading = ++this.#reading;
    this.#sound.stopFile();
    this.#file = null;
    this.say("");
    this.#showFile();
    if (!file) return;
    try {
      const sound = await readSoundFile(file);
      if (reading === this.#reading) this.#file = sound;
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      if (reading === this.#reading) this.say(error.message, { bad: true });
    }
    this.#showFile();
  }

  #toggleFile() {
    if (this.#sound.place_s === null) this.#sound.playFile(required(this.#file, "the file"));
    else this.#sound.stopFile();
    this.#showFile();
  }

  #showFile() {
    const place_s = this.#sound.place_s;
    const isPlaying = place_s !== null;
    const length_s = this.#file?.duration ?? 0;
    parts.filePlay.disabled = !isPlaying && (!this.#inCall || !this.#file);
    parts.filePlay.textContent = t(isPlaying ? "stop_file" : "play_file");
    parts.fileProgress.max = length_s || 1;
    parts.fileProgress.value = place_s ?? 0;
    const time = length_s ? `${minutes(place_s ?? 0)} / ${minutes(length_s)}` : "";
    parts.fileTime.textContent = time || (this.#inCall ? "" : t("file_in_call"));
    if (isPlaying) this.#progress ??= setInterval(() => this.#showFile(), PROGRESS_MS);
    else {
      clearInterval(this.#progress);
      this.#progress = undefined;
    }
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

/** @param {number} seconds */
function minutes(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
