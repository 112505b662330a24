// Meter of one side of a call: its level in the dock and in the panel, and its loudness in LUFS. Follows a stream until it is given
// another one; the loudness of the whole call goes on across them.

import { part } from "./element.js";
import { messageOf } from "./guards.js";
import { t, wanted } from "./language.js";
import { watchLevel } from "./level.js";

/** @typedef {{ momentary: number, integrated: number }} LoudnessReport in LUFS */

// Figures that change more often cannot be read.
const REPORTS = 4; // of ten a second

export class SideMeter {
  #context;
  #onLevel;
  #meter;
  #bars;
  #line;
  #text;
  #unwatch = () => {};
  #reports = 0;
  /** @type {MediaStream | null} */
  #stream = null;
  /** @type {MediaStreamAudioSourceNode | null} */
  #source = null;
  /** @type {AudioWorkletNode | null} */
  #node = null;
  #closed = false;

  /**
   * @param {AudioContext} context
   * @param {"you" | "bot"} side
   * @param {(level: number) => void} [onLevel] called with 0..1
   */
  constructor(context, side, onLevel) {
    this.#context = context;
    this.#onLevel = onLevel;
    this.#meter = part(`level-${side}`, HTMLElement);
    this.#bars = [...this.#meter.querySelectorAll("i")];
    this.#line = part(`line-${side}`, HTMLElement);
    this.#text = part(`loudness-${side}`, HTMLElement);
    // Without it the call is whole.
    this.#measure().catch((error) => console.info(`no loudness is measured: ${messageOf(error)}`));
  }

  /** @param {MediaStream | null} stream */
  follow(stream) {
    if (stream === this.#stream) return;
    this.#unwatch();
    this.#unwatch = stream ? watchLevel(this.#context, stream, (level) => this.#show(level)) : () => {};
    this.#stream = stream;
    this.#connect();
  }

  close() {
    this.#closed = true;
    this.follow(null);
    this.#node?.port.close();
    this.#node = null;
    this.#text.textContent = "";
  }

  async #measure() {
    if (!this.#context.audioWorklet) return;
    await this.#context.audioWorklet.addModule("/shared/loudness_worklet.js");
    if (this.#closed) return;
    // One channel, as the call sends one.
    const options = /** @type {const} */ ({ channelCount: 1, channelCountMode: "explicit", numberOfOutputs: 0 });
    this.#node = new AudioWorkletNode(this.#context, "loudness", options);
    this.#node.port.onmessage = ({ data }) => this.#write(data);
    this.#connect();
  }

  #connect() {
    this.#source?.disconnect();
    this.#source = null;
    if (!this.#node || !this.#stream) return;
    this.#source = this.#context.createMediaStreamSource(this.#stream);
    this.#source.connect(this.#node);
  }

  /** @param {number} level */
  #show(level) {
    this.#meter.setAttribute("aria-valuenow", String(Math.round(level * 100)));
    this.#bars.forEach((bar, at) => bar.style.setProperty("--level", clamp(level * this.#bars.length - at)));
    this.#line.style.setProperty("--level", clamp(level));
    this.#onLevel?.(level);
  }

  /** @param {LoudnessReport} report */
  #write({ momentary, integrated }) {
    if (this.#reports++ % REPORTS) return;
    this.#text.textContent = t("loudness", { now: shown(momentary), whole: shown(integrated) });
  }
}

/** @param {number} value */
function clamp(value) {
  return Math.min(1, Math.max(0, value)).toFixed(2);
}

/** @param {number} lufs below the absolute gate there is no loudness worth a figure */
function shown(lufs) {
  if (lufs < -70) return "–";
  return lufs.toLocaleString(wanted(), { minimumFractionDigits: 1, maximumFractionDigits: 1 }).replace("-", "−");
}
