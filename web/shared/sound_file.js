// File in place of the microphone, in the panel "Sound and devices": reads it, plays it to the bot and shows its place.

import { CallError } from "./call.js";
import { part } from "./element.js";
import { required } from "./guards.js";
import { t } from "./language.js";
import { readSoundFile } from "./sound_source.js";

/** @import { CallSound } from "./call_sound.js" */

const PROGRESS_MS = 250;

export class SoundFile {
  #sound;
  #say;
  #chooser = part("file", HTMLInputElement);
  #play = part("file-play", HTMLButtonElement);
  #progressBar = part("file-progress", HTMLProgressElement);
  #time = part("file-time", HTMLElement);
  #inCall = false;
  /** @type {AudioBuffer | null} of the chosen file */
  #file = null;
  #reading = 0; // of the files that were chosen: the newest counts
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #progress;

  /**
   * @param {CallSound} sound
   * @param {(text: string, options?: { bad?: boolean }) => void} say
   */
  constructor(sound, say) {
    this.#sound = sound;
    this.#say = say;
    this.#chooser.addEventListener("change", () => this.#read());
    this.#play.addEventListener("click", () => this.#toggleFile());
  }

  async #read() {
    const [file] = this.#chooser.files ?? [];
    const reading = ++this.#reading;
    this.#sound.stopFile();
    this.#file = null;
    this.#say("");
    this.show();
    if (!file) return;
    try {
      const sound = await readSoundFile(file);
      if (reading === this.#reading) this.#file = sound;
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      if (reading === this.#reading) this.#say(error.message, { bad: true });
    }
    this.show();
  }

  #toggleFile() {
    if (this.#sound.place_s === null) this.#sound.playFile(required(this.#file, "the file"));
    else this.#sound.stopFile();
    this.show();
  }

  /**
   * Show what is possible now.
   *
   * @param {{ inCall?: boolean }} [page]
   */
  show({ inCall = this.#inCall } = {}) {
    this.#inCall = inCall;
    const place_s = this.#sound.place_s;
    const isPlaying = place_s !== null;
    const length_s = this.#file?.duration ?? 0;
    this.#play.disabled = !isPlaying && (!this.#inCall || !this.#file);
    this.#play.textContent = t(isPlaying ? "stop_file" : "play_file");
    this.#progressBar.max = length_s || 1;
    this.#progressBar.value = place_s ?? 0;
    const time = length_s ? `${minutes(place_s ?? 0)} / ${minutes(length_s)}` : "";
    this.#time.textContent = time || (this.#inCall ? "" : t("file_in_call"));
    if (isPlaying) this.#progress ??= setInterval(() => this.show(), PROGRESS_MS);
    else {
      clearInterval(this.#progress);
      this.#progress = undefined;
    }
  }
}

/** @param {number} seconds */
function minutes(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
