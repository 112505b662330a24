// The picture of a conversation: the user's camera, or a film in its place, with the controls and the subtitles over it. Opens the
// camera, turns it over, mirrors it on the page only, fills the screen, and takes the pictures that the model sees.

import { openCamera } from "./call.js";
import { part } from "./element.js";
import { required } from "./guards.js";
import { t } from "./language.js";
import { stopTracks } from "./sight.js";

/** @import { Devices } from "./devices.js" */
/** @import { Key } from "./language.js" */

const PICTURE_WIDTH = 640;
const EVERY_MS = 950; // about one a second, also where a chunk comes a little early
const QUALITY = 0.7;
const MIRRORED = "parley.mirrored";

/**
 * @typedef {object} StageHandlers
 * @property {(shows: boolean) => void} changed the camera was opened or closed
 * @property {(error: unknown) => void} failed
 * @property {(words: string) => void} other another camera than the chosen one was opened
 * @property {() => void} gone the browser or the device ended the camera
 */

export class Stage {
  #on;
  #devices;
  #root = part("stage", HTMLElement);
  #video = part("picture", HTMLVideoElement);
  #empty = part("no-picture", HTMLElement);
  #flip = part("flip", HTMLButtonElement);
  #mirror = part("mirror", HTMLButtonElement);
  #whole = part("whole", HTMLButtonElement);
  #canvas = document.createElement("canvas");
  /** @type {MediaStream | null} */
  #camera = null;
  /** @type {HTMLVideoElement | null} film that is shown in place of the camera */
  #film = null;
  /** @type {"user" | "environment" | undefined} */
  #facing;
  #device = ""; // that is open
  #attempt = 0;
  #lastMs = -Infinity;

  /**
   * @param {Devices} devices have the camera that the user has chosen
   * @param {StageHandlers} on
   */
  constructor(devices, on) {
    this.#devices = devices;
    this.#on = on;
    this.#flip.addEventListener("click", () => this.#turnOver());
    this.#mirror.addEventListener("click", () => {
      localStorage.setItem(MIRRORED, String(!this.#isMirrored));
      this.show();
    });
    this.#whole.addEventListener("click", () => this.#toggleWhole());
    document.addEventListener("fullscreenchange", () => this.show());
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape" && this.#root.classList.contains("whole")) this.#cover(false);
    });
    this.show();
  }

  get isOn() {
    return this.#camera !== null;
  }

  get #isWhole() {
    return document.fullscreenElement === this.#root || this.#root.classList.contains("whole");
  }

  /** A camera that looks at the room shows it as it is. */
  get #isMirrored() {
    return this.#facing !== "environment" && localStorage.getItem(MIRRORED) !== "false";
  }

  /**
   * Open the camera, in place of the one that is open.
   *
   * @param {{ device?: string, facing?: "user" | "environment" }} [wanted]
   */
  async open(wanted = { device: this.#devices.chosen("camera").id }) {
    this.#attempt += 1;
    const attempt = this.#attempt;
    // Telephones open no second camera while the first one is in use.
    stopTracks(this.#camera);
    let stream;
    try {
      stream = await openCamera(wanted.device, wanted.facing);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      this.close();
      this.#on.failed(error);
      return;
    }
    if (attempt !== this.#attempt) {
      stopTracks(stream);
      return;
    }
    this.#take(stream);
    const other = wanted.facing ? "" : this.#devices.otherThanChosen("camera", stream.getVideoTracks()[0]);
    if (other) this.#on.other(other);
    await this.#devices.refresh();
    this.show();
  }

  /** Close the camera. Safe to call twice. */
  close() {
    this.#attempt += 1;
    const wasOn = this.isOn;
    stopTracks(this.#camera);
    this.#camera = null;
    this.show();
    if (wasOn) this.#on.changed(false);
  }

  /**
   * Show a film in place of the camera, or the camera again.
   *
   * @param {HTMLVideoElement | null} film
   */
  useFilm(film) {
    this.#film?.remove();
    this.#film = film;
    if (film) {
      film.className = "picture";
      this.#video.after(film);
    }
    this.show();
  }

  /** Return the picture of this second as JPEG in base64, as the camera sees it; none where it was taken already. */
  frames() {
    const video = this.#film ?? (this.#camera && this.#video);
    if (!video?.videoWidth || performance.now() - this.#lastMs < EVERY_MS) return [];
    this.#lastMs = performance.now();
    const scale = Math.min(1, PICTURE_WIDTH / video.videoWidth);
    this.#canvas.width = video.videoWidth * scale;
    this.#canvas.height = video.videoHeight * scale;
    required(this.#canvas.getContext("2d"), "the canvas").drawImage(video, 0, 0, this.#canvas.width, this.#canvas.height);
    return [this.#canvas.toDataURL("image/jpeg", QUALITY).split(",")[1]];
  }

  /** Show the state, in the language of the page. */
  show() {
    if (this.#video.srcObject !== this.#camera) this.#video.srcObject = this.#camera;
    this.#video.hidden = !this.#camera || this.#film !== null;
    this.#video.classList.toggle("mirrored", this.#isMirrored);
    this.#empty.hidden = this.#camera !== null || this.#film !== null;
    this.#flip.hidden = this.#video.hidden || this.#devices.choices("camera").length < 2;
    this.#mirror.hidden = this.#video.hidden || this.#facing === "environment";
    this.#mirror.setAttribute("aria-pressed", String(this.#isMirrored));
    this.#whole.setAttribute("aria-pressed", String(this.#isWhole));
    label(this.#whole, this.#isWhole ? "leave_whole" : "whole");
  }

  /** @param {MediaStream} stream */
  #take(stream) {
    const wasOn = this.isOn;
    this.#camera = stream;
    const [track] = stream.getVideoTracks();
    const { facingMode: facing, deviceId: device = "" } = track.getSettings();
    this.#device = device;
    this.#facing = facing === "user" || facing === "environment" ? facing : undefined;
    track.addEventListener("ended", () => {
      if (stream !== this.#camera) return;
      this.close();
      this.#on.gone();
    });
    if (!wasOn) this.#on.changed(true);
  }

  /** Open the camera on the other side; those of a computer have no side, and follow each other. */
  #turnOver() {
    if (this.#facing === undefined) this.#openNext();
    else this.open({ facing: this.#facing === "user" ? "environment" : "user" });
  }

  #openNext() {
    const ids = this.#devices.choices("camera").map(({ id }) => id);
    const device = ids[(ids.indexOf(this.#device) + 1) % ids.length] ?? "";
    this.#devices.choose("camera", device);
    this.open({ device });
  }

  async #toggleWhole() {
    if (document.fullscreenElement) {
      await document.exitFullscreen();
      return;
    }
    const isCovered = this.#root.classList.contains("whole");
    // Safari on a telephone has no full screen for elements: the picture covers the page.
    if (isCovered || !document.fullscreenEnabled) this.#cover(!isCovered);
    else await this.#root.requestFullscreen().catch(() => this.#cover(true));
  }

  /** @param {boolean} covers */
  #cover(covers) {
    this.#root.classList.toggle("whole", covers);
    // What is covered is reached by no key and read by no screen reader.
    for (let node = this.#root; node !== document.body && node.parentElement; node = node.parentElement) {
      for (const other of node.parentElement.children) {
        if (other !== node && other instanceof HTMLElement) other.inert = covers;
      }
    }
    this.show();
  }
}

/**
 * @param {HTMLButtonElement} button
 * @param {Key} key
 */
function label(button, key) {
  button.ariaLabel = button.title = t(key);
}
