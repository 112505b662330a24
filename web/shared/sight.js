// What the caller shows in a call: the camera and a shared screen. Decides when each is opened and closed, and shows the camera to
// the caller; the connection sends them (call.js).

import { CallError, openCamera, openScreen } from "./call.js";
import { messageOf } from "./guards.js";
import { t } from "./language.js";

/** @import { Call } from "./call.js" */

/** @typedef {"camera" | "screen"} Source */

export class Sight {
  /** @type {Record<Source, MediaStream | null>} */
  #streams = { camera: null, screen: null };
  /** @type {Record<Source, Promise<void> | null>} the browser asks the user */
  #asking = { camera: null, screen: null };
  #preview;
  #on;

  /**
   * @param {HTMLVideoElement} preview picture of the camera
   * @param {object} on
   * @param {() => void} on.changed
   * @param {(source: Source, track: MediaStreamTrack) => void} on.opened
   * @param {(source: Source) => void} on.gone the browser or the device ended it
   * @param {() => string} on.camera id of the camera that is chosen; empty for the browser's choice
   */
  constructor(preview, on) {
    this.#preview = preview;
    this.#on = on;
  }

  /** @param {Source} source */
  shows(source) {
    return this.#streams[source] !== null;
  }

  /**
   * Show a source in a call, or no longer. Throws CallError.
   *
   * @param {Source} source
   * @param {Call} call
   */
  async toggle(source, call) {
    if (this.shows(source)) await this.drop(source, call);
    else await this.show(source, call);
  }

  /**
   * Show a source in a call; a request while the browser asks waits for the same answer. Throws CallError.
   *
   * @param {Source} source
   * @param {Call} call
   */
  async show(source, call) {
    if (this.shows(source)) return;
    this.#asking[source] ??= this.#open(source, call).finally(() => {
      this.#asking[source] = null;
      this.#on.changed();
    });
    await this.#asking[source];
  }

  /**
   * Show the camera that is chosen now, where one is shown. Throws CallError.
   *
   * @param {Call} call
   */
  async changeCamera(call) {
    if (!this.shows("camera")) return;
    // A phone opens one camera at a time.
    stopTracks(this.#streams.camera);
    this.#streams.camera = null;
    try {
      await this.show("camera", call);
    } catch (error) {
      await this.drop("camera", call);
      throw error;
    }
  }

  /**
   * @param {Source} source
   * @param {Call | null} call
   */
  async drop(source, call) {
    stopTracks(this.#streams[source]);
    this.#streams[source] = null;
    if (source === "camera") this.#preview.srcObject = null;
    this.#on.changed();
    if (call && !call.closed) await call.useVideo(source, null);
  }

  /**
   * Go on showing in another call.
   *
   * @param {Call} call
   */
  async moveTo(call) {
    for (const source of /** @type {Source[]} */ (["camera", "screen"])) {
      const stream = this.#streams[source];
      if (stream) await call.useVideo(source, stream);
    }
  }

  /** End all of it. */
  close() {
    for (const source of /** @type {Source[]} */ (["camera", "screen"])) {
      stopTracks(this.#streams[source]);
      this.#streams[source] = null;
    }
    this.#preview.srcObject = null;
  }

  /**
   * @param {Source} source
   * @param {Call} call
   */
  async #open(source, call) {
    const stream = await (source === "camera" ? openCamera(this.#on.camera()) : openScreen());
    try {
      if (!call.closed) await call.useVideo(source, stream);
    } catch (error) {
      stopTracks(stream);
      throw new CallError(t(`${source}_unusable`, { why: messageOf(error) }));
    }
    if (call.closed) {
      stopTracks(stream);
      return;
    }
    this.#streams[source] = stream;
    if (source === "camera") this.#preview.srcObject = stream;
    const [track] = stream.getVideoTracks();
    this.#on.opened(source, track);
    track.addEventListener("ended", () => {
      if (stream !== this.#streams[source]) return;
      this.drop(source, call);
      this.#on.gone(source);
    });
  }
}

/** @param {MediaStream | null} stream */
export function stopTracks(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}
