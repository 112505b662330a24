// A file of sound, or of sound and pictures, that a model hears and sees in place of the microphone and the camera. The browser plays
// it, at its own pace; nothing of it is loaded onto the server but what is played.

import { within } from "./deadline.js";
import { nameOf } from "./guards.js";
import { t } from "./language.js";

export const MOST_BYTES = 60_000_000;
export const MOST_S = 30 * 60;
const READ_MS = 15_000;
// The user hears the file too, below the bot.
const MONITOR_GAIN = 0.4;

/** Failure to use a file, in words for the user. */
export class FileError extends Error {}

/**
 * Return why a file is not even opened; empty when it is.
 *
 * @param {Pick<File, "name" | "size" | "type">} file
 */
export function refusalOf({ name, size, type }) {
  if (size > MOST_BYTES) return t("omni_file_too_large", { name, most: MOST_BYTES / 1e6 });
  // A browser that does not know the ending of a name gives no type: whether it can be played shows when it is opened.
  if (type && !/^(audio|video)\//.test(type)) return t("omni_file_no_media", { name });
  return "";
}

export class FileSource {
  #address;
  /** @type {AudioNode[]} */
  #nodes = [];
  #onEnd = () => {};
  #isClosed = false;

  /**
   * @param {string} name
   * @param {string} address of its contents
   * @param {HTMLVideoElement} player
   */
  constructor(name, address, player) {
    this.name = name;
    this.player = player;
    this.#address = address;
  }

  /**
   * Open a file that the user has chosen. Throws FileError.
   *
   * @param {File} file
   */
  static async open(file) {
    const refusal = refusalOf(file);
    if (refusal) throw new FileError(refusal);
    const player = document.createElement("video");
    player.playsInline = true;
    player.preload = "auto";
    const address = URL.createObjectURL(file);
    const source = new FileSource(file.name, address, player);
    const read = new Promise((resolve, reject) => {
      player.addEventListener("loadeddata", resolve, { once: true });
      player.addEventListener("error", reject, { once: true });
    });
    player.src = address;
    try {
      await within(READ_MS, read);
    } catch {
      source.close();
      throw new FileError(t("omni_file_unreadable", { name: file.name }));
    }
    if (source.durationS > MOST_S) {
      source.close();
      throw new FileError(t("omni_file_too_long", { name: file.name, most: MOST_S / 60 }));
    }
    return source;
  }

  /** True where it has pictures. */
  get isFilm() {
    return this.player.videoWidth > 0;
  }

  /** Its length; 0 where it is not known before its end, as in what browsers record themselves. */
  get durationS() {
    return Number.isFinite(this.player.duration) ? this.player.duration : 0;
  }

  /**
   * Play it into a node of the audio, until its end.
   *
   * @param {AudioContext} context
   * @param {AudioNode} target
   * @param {{ progress: (atS: number) => void, end: () => void }} on
   * @param {{ isHeld: boolean }} conversation `isHeld`: it is paused, and so is the file
   */
  async play(context, target, on, { isHeld }) {
    const { player } = this;
    const node = context.createMediaElementSource(player);
    const monitor = new GainNode(context, { gain: MONITOR_GAIN });
    node.connect(target);
    node.connect(monitor).connect(context.destination);
    this.#nodes = [node, monitor];
    this.#onEnd = on.end;
    player.addEventListener("timeupdate", () => {
      if (this.#isClosed) return;
      on.progress(player.currentTime);
      if (player.currentTime > MOST_S) on.end();
    });
    for (const name of ["ended", "error"]) player.addEventListener(name, () => !this.#isClosed && on.end());
    if (!isHeld) await this.#run();
  }

  /** @param {boolean} isHeld true while the conversation is paused */
  hold(isHeld) {
    if (isHeld) this.player.pause();
    else if (!this.player.ended && !this.#isClosed) this.#run();
  }

  async #run() {
    try {
      await this.player.play();
    } catch (error) {
      // A pause that follows at once ends the wait only.
      if (nameOf(error) !== "AbortError" && !this.#isClosed) this.#onEnd();
    }
  }

  /** Stop it and forget its contents. Safe to call twice. */
  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.player.pause();
    this.player.removeAttribute("src");
    for (const node of this.#nodes) node.disconnect();
    URL.revokeObjectURL(this.#address);
  }
}
