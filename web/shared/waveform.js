// Picture of a recorded call: both sides over time, with their turns, overlaps, cuts and latencies. `blocksOf` and `captionsOf` read
// the events of a recording and are pure; `Waveform` draws.

import { cutsOf, overlapsOf } from "./call_facts.js";

/** @import { RecordingDetail, RecordingEvent } from "../types/server.js" */
/** @import { CutReply, Overlap } from "./call_facts.js" */

// A bar narrower than this is not seen.
const BAR_PX = 2;
const LANE_PX = 44;
const BLOCK_PX = 4;
const MARK_PX = 5;

/**
 * Stretch of time in which one side had the floor.
 *
 * @typedef {{ side: "caller" | "bot", start_ms: number, end_ms: number, cut: boolean }} Block
 */

/**
 * Line of the transcript.
 *
 * @typedef {{ side: "caller" | "bot", at_ms: number, text: string, unheard: string, latency_ms: number | null, heard?: RecordingEvent }} Caption
 */

/**
 * Return the turns of both sides, in order. Voice is reported when it has been sure for a moment: the block begins with its first
 * sound.
 *
 * @param {RecordingEvent[]} events
 * @returns {Block[]}
 */
export function blocksOf(events) {
  /** @type {Block[]} */
  const blocks = [];
  /** @type {Map<string, number>} */
  const replies = new Map();
  /** @type {number | null} */
  let voice_ms = null;
  for (const event of events) {
    if (event.event === "VoiceStarted") voice_ms ??= event.at_ms - (event.voiced_ms ?? 0);
    if (event.event === "VoiceEnded" && voice_ms !== null) {
      blocks.push({ side: "caller", start_ms: voice_ms, end_ms: event.at_ms - (event.silence_ms ?? 0), cut: false });
      voice_ms = null;
    }
    if (event.event === "ReplyStarted" && event.reply_id) replies.set(event.reply_id, event.at_ms);
    const start_ms = event.event === "ReplyFinished" ? replies.get(event.reply_id ?? "") : undefined;
    if (start_ms !== undefined) {
      replies.delete(event.reply_id ?? "");
      blocks.push({ side: "bot", start_ms, end_ms: event.at_ms, cut: Boolean(event.truncated) });
    }
  }
  return blocks.sort((one, other) => one.start_ms - other.start_ms);
}

/**
 * Return what was said by whom. A reply has the time from the end of the caller's voice to its own beginning, where it answers a turn.
 *
 * @param {RecordingEvent[]} events
 * @returns {Caption[]}
 */
export function captionsOf(events) {
  /** @type {Caption[]} */
  const captions = [];
  /** @type {Map<string, { at_ms: number, latency_ms: number | null, heard?: RecordingEvent }>} */
  const replies = new Map();
  /** @type {{ at_ms: number, latency_ms: number | null, heard?: RecordingEvent } | undefined} the reply that began last */
  let newest;
  /** @type {number | null} */
  let turn_ms = null;
  /** @type {number | null} */
  let silent_ms = null;
  /** @type {number | null} beginning of a turn whose words come later, as from a realtime service */
  let untold_ms = null;
  for (const event of events) {
    if (event.event === "TurnStarted") turn_ms ??= event.at_ms;
    if (event.event === "TurnEndDecided") silent_ms = event.at_ms - (event.silence_ms ?? 0);
    if (event.event === "TurnEnded") {
      const at_ms = turn_ms ?? event.at_ms;
      turn_ms = null;
      if (event.text) captions.push({ side: "caller", at_ms, text: event.text, unheard: "", latency_ms: null });
      else [untold_ms, silent_ms] = [at_ms, null]; // noise has no answer
    }
    if (event.event === "TurnTranscribed" && event.text) {
      captions.push({ side: "caller", at_ms: untold_ms ?? event.at_ms, text: event.text, unheard: "", latency_ms: null });
      untold_ms = null;
    }
    if (event.event === "TextTyped" && event.text) {
      captions.push({ side: "caller", at_ms: event.at_ms, text: event.text, unheard: "", latency_ms: null });
    }
    if (event.event === "ReplyStarted" && event.reply_id) {
      newest = { at_ms: event.at_ms, latency_ms: silent_ms === null ? null : event.at_ms - silent_ms };
      replies.set(event.reply_id, newest);
      silent_ms = null;
    }
    // The client reports a moment after the reply has begun: it may be over by then.
    if (event.event === "LatencyHeard" && newest) newest.heard = event;
    if (event.event === "ReplyFinished" && event.reply_id) {
      const begun = replies.get(event.reply_id);
      if (begun && (event.text || event.unheard)) {
        captions.push(Object.assign(begun, { side: /** @type {const} */ ("bot"), text: event.text ?? "", unheard: event.unheard ?? "" }));
      }
    }
  }
  return captions.sort((one, other) => one.at_ms - other.at_ms);
}

/**
 * Canvas with both sides of a call, the caller above. A click moves to that time. What does not move is drawn once, on a canvas of its
 * own: a player reports its place many times a second.
 */
export class Waveform {
  #canvas;
  #onSeek;
  #still = document.createElement("canvas");
  /** @type {RecordingDetail | null} */
  #call = null;
  /** @type {Block[]} */
  #blocks = [];
  /** @type {Overlap[]} */
  #overlaps = [];
  /** @type {CutReply[]} */
  #cuts = [];
  #at_ms = 0;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(at_ms: number) => void} onSeek
   */
  constructor(canvas, onSeek) {
    this.#canvas = canvas;
    this.#onSeek = onSeek;
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      if (this.#call) this.#onSeek(((event.clientX - box.left) / box.width) * this.#length_ms);
    });
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** @param {RecordingDetail} call */
  show(call) {
    this.#call = call;
    this.#blocks = blocksOf(call.events);
    this.#overlaps = overlapsOf(this.#blocks);
    this.#cuts = cutsOf(call.events);
    this.#at_ms = 0;
    this.#draw();
  }

  /** @param {number} at_ms place of the playback */
  move(at_ms) {
    this.#at_ms = at_ms;
    this.#place();
  }

  get #length_ms() {
    return Math.max(this.#call?.duration_ms ?? 0, 1);
  }

  /** @param {number} ms */
  #x(ms) {
    return (this.#canvas.clientWidth * ms) / this.#length_ms;
  }

  /** Draw everything. */
  #draw() {
    const width = this.#canvas.clientWidth;
    if (!this.#call || !width) return;
    const scale = window.devicePixelRatio || 1;
    for (const canvas of [this.#canvas, this.#still]) {
      canvas.width = width * scale;
      canvas.height = 2 * LANE_PX * scale;
      canvas.getContext("2d")?.scale(scale, scale);
    }
    this.#drawStill(this.#call, width);
    this.#place();
  }

  /**
   * Draw both sides with their blocks and cuts.
   *
   * @param {RecordingDetail} call
   * @param {number} width
   */
  #drawStill(call, width) {
    const context = this.#still.getContext("2d");
    if (!context) return;
    const height = 2 * LANE_PX;
    for (const { start_ms, end_ms } of this.#overlaps) {
      const [left, wide] = [this.#x(start_ms), Math.max(2, this.#x(end_ms - start_ms))];
      context.fillStyle = this.#tone("--warn-soft");
      context.fillRect(left, 0, wide, height);
      // Not by the shade alone: it is weak on some screens.
      context.fillStyle = this.#tone("--warn");
      context.fillRect(left, LANE_PX - 1, wide, 2);
    }
    for (const [lane, side] of /** @type {const} */ (["caller", "bot"]).entries()) {
      const middle = lane * LANE_PX + LANE_PX / 2;
      const tall = LANE_PX / 2 - BLOCK_PX - 1;
      context.fillStyle = this.#tone(side === "caller" ? "--ink-soft" : "--accent");
      if (call.peaks) {
        const { [side]: peaks, interval_ms } = call.peaks;
        for (let left = 0; left < width; left += BAR_PX) {
          const place = (/** @type {number} */ px) => ((px / width) * this.#length_ms) / interval_ms;
          const loud = loudest(peaks, place(left), place(left + BAR_PX));
          // The ear hears steps of loudness, not of pressure: soft speech stays visible.
          const bar = Math.max(0.5, tall * Math.sqrt(loud / 100));
          context.fillRect(left, middle - bar, BAR_PX - 0.5, 2 * bar);
        }
      }
      const edge = lane === 0 ? 0 : height - BLOCK_PX;
      for (const block of this.#blocks.filter((each) => each.side === side)) {
        context.fillRect(this.#x(block.start_ms), edge, Math.max(1, this.#x(block.end_ms - block.start_ms)), BLOCK_PX);
      }
    }
    for (const { at_ms, resumed_ms } of this.#cuts) {
      const at = this.#x(at_ms);
      context.fillStyle = this.#tone("--bad");
      context.fillRect(at - 1, LANE_PX, 2, LANE_PX);
      drawTriangle(context, [at - MARK_PX, LANE_PX], [at + MARK_PX, LANE_PX], [at, LANE_PX + 2 * MARK_PX]);
      if (resumed_ms === null) continue;
      const on = this.#x(resumed_ms);
      context.fillStyle = this.#tone("--accent");
      context.fillRect(on - 1, LANE_PX, 2, LANE_PX);
      drawTriangle(context, [on, LANE_PX], [on, LANE_PX + 2 * MARK_PX], [on + 2 * MARK_PX, LANE_PX + MARK_PX]);
    }
  }

  /** Draw the place of the playback on what does not move. */
  #place() {
    const context = this.#canvas.getContext("2d");
    const width = this.#canvas.clientWidth;
    if (!this.#call || !context || !width) return;
    context.clearRect(0, 0, width, 2 * LANE_PX);
    context.drawImage(this.#still, 0, 0, width, 2 * LANE_PX);
    context.fillStyle = this.#tone("--ink");
    context.fillRect(this.#x(this.#at_ms) - 0.5, 0, 1, 2 * LANE_PX);
  }

  /** @param {string} name of a colour of the page */
  #tone(name) {
    return getComputedStyle(this.#canvas).getPropertyValue(name).trim();
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {...[number, number]} corners
 */
function drawTriangle(context, ...corners) {
  context.beginPath();
  for (const [x, y] of corners) context.lineTo(x, y);
  context.fill();
}

/**
 * @param {number[]} peaks
 * @param {number} from
 * @param {number} to
 */
function loudest(peaks, from, to) {
  let most = 0;
  for (let place = Math.floor(from); place < Math.max(to, Math.floor(from) + 1) && place < peaks.length; place += 1) {
    most = Math.max(most, peaks[place] ?? 0);
  }
  return most;
}
