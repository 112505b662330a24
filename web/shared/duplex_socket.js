// A conversation over /ws/duplex: messages in both directions, without their sound and their appearance. Used once.

import { keepNext, subprotocols } from "./token.js";

/** @import { DuplexMessage, DuplexResult, EngineQueue, HeardLatency, Prepared } from "../types/server.js" */

const OPEN_MS = 10_000;
const PREPARED_MS = 15_000;
const STOPPED_MS = 1_500;
// Every chunk has an answer. Where one is overdue, the server is asked over another connection: a network that is away takes minutes to
// close a socket. A model that is slow is waited for, but not a socket that has brought nothing for so long.
const LOOK_MS = 500;
const LATE_MS = 1_000;
const OVERDUE_MS = 2_000;
const PROBE_MS = 2_000;
const DEAD_MS = 15_000;

/**
 * Why a conversation is over: a code of the server, or "silent" (no answer), "late" (the model was not ready in time), "refused" (before
 * it began), "lost". `text` holds the server's own words.
 *
 * @typedef {{ code: string, text: string }} EndReason
 */
/** @typedef {{ code: string, text: string, param: string }} ServerError `param`: the field that is wrong */
/**
 * @typedef {object} DuplexHandlers
 * @property {(place: EngineQueue) => void} queued
 * @property {(facts: Prepared) => void} prepared
 * @property {(result: DuplexResult, answeredMs: number) => void} result
 * @property {(type: "paused" | "resumed") => void} held
 * @property {(error: ServerError) => void} error the conversation goes on
 * @property {(reason: EndReason | null) => void} end null when this side ended it
 */

/**
 * Encode float32 samples as the server reads them: little-endian bytes in base64.
 *
 * @param {Float32Array} samples
 */
export function encode(samples) {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = "";
  // In parts: a call has room for some ten thousand arguments.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}

/**
 * Decode samples from such a text.
 *
 * @param {string} text
 */
export function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
}

/** Return whether the server answers now. */
async function answers() {
  try {
    return (await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) })).ok;
  } catch {
    return false;
  }
}

export class DuplexSocket {
  #answers;
  #overdueMs;
  #deadMs;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {number[]} times at which the chunks that have no answer yet were sent */
  #sent = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #late;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watching;
  #isProbing = false;
  #lookedAt = 0;
  #heardAt = 0; // time of the last message
  #wasOpen = false;
  #isOver = false;
  /** @type {ServerError | null} of the last message: the reason of an end that follows */
  #error = null;

  /**
   * @param {DuplexHandlers} on
   * @param {object} [link]
   * @param {() => Promise<boolean>} [link.answers] finds out whether the server can be reached
   * @param {number} [link.overdueMs] after which it is asked
   * @param {number} [link.deadMs] without any message, after which the connection is given up all the same
   */
  constructor(on, link = {}) {
    this.on = on;
    this.#answers = link.answers ?? answers;
    this.#overdueMs = link.overdueMs ?? OVERDUE_MS;
    this.#deadMs = link.deadMs ?? DEAD_MS;
  }

  /**
   * @param {object} options
   * @param {string} options.prompt
   * @param {string} [options.voice] as for `encode`, at 16 kHz
   * @param {boolean} options.voiceOnly
   * @param {string} [options.session] the conversation that goes on after its connection was lost
   * @param {number} [options.openMs] longest wait for the connection
   */
  open({ prompt, voice = "", voiceOnly, session = "", openMs = OPEN_MS }) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const id = `${voiceOnly ? "adx" : "omni"}_${Date.now().toString(36)}`;
    const goesOn = session && `?${new URLSearchParams({ session, reconnect: "true" })}`;
    const socket = new WebSocket(`${scheme}://${location.host}/ws/duplex/${id}${goesOn}`, subprotocols());
    this.#socket = socket;
    this.#expect("silent", openMs);
    socket.addEventListener("open", () => {
      this.#wasOpen = true;
      this.#send({
        type: "prepare",
        ...(prompt && { system_prompt: prompt }),
        ...(voice && { ref_audio_base64: voice, tts_ref_audio_base64: voice }),
      });
      this.#expect("silent");
    });
    socket.addEventListener("message", (event) => this.#onMessage(JSON.parse(event.data)));
    socket.addEventListener("close", ({ reason }) => this.#end(this.#reasonOf(reason)));
  }

  /**
   * Send a typed turn.
   *
   * @param {string} text
   */
  type(text) {
    return this.#send({ type: "text", text });
  }

  /**
   * Send a chunk of float32 samples at 16 kHz, and pictures as JPEG in base64.
   *
   * @param {Float32Array} samples
   * @param {{ frames?: string[], forceListen?: boolean }} [options]
   */
  chunk(samples, { frames = [], forceListen = false } = {}) {
    if (!this.#send({
      type: "audio_chunk",
      audio_base64: encode(samples),
      ...(frames.length && { frame_base64_list: frames }),
      ...(forceListen && { force_listen: true }),
    })) return;
    this.#sent.push(performance.now());
    this.#watching ??= this.#watch();
  }

  /**
   * Report the latency of an answer at the user's ear.
   *
   * @param {HeardLatency} heard
   */
  report(heard) {
    this.#send({ type: "latency", ...heard });
  }

  pause() {
    this.#send({ type: "pause" });
  }

  resume() {
    this.#send({ type: "resume" });
  }

  /** Say goodbye and close. Safe to call twice. */
  close() {
    const socket = this.#socket;
    if (!this.#send({ type: "stop" })) socket?.close();
    else setTimeout(() => socket?.close(), STOPPED_MS);
    this.#end(null);
  }

  /** @param {{ type: string, [field: string]: unknown }} message */
  #send(message) {
    if (this.#isOver || this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /**
   * @param {string} code of the end, if nothing comes in time
   * @param {number} [withinMs]
   */
  #expect(code, withinMs = PREPARED_MS) {
    clearTimeout(this.#late);
    this.#late = setTimeout(() => this.#giveUp(code), withinMs);
  }

  /** @param {string} code */
  #giveUp(code) {
    this.#end({ code, text: "" });
    this.#socket?.close();
  }

  #watch() {
    this.#lookedAt = performance.now();
    return setInterval(() => this.#look(), LOOK_MS);
  }

  /** Find out whether the connection still stands, where an answer is overdue. */
  async #look() {
    const now = performance.now();
    const isLate = now - this.#lookedAt > LATE_MS;
    this.#lookedAt = now;
    // A page that stood still has messages that it has not read yet.
    if (isLate) return;
    const waitedMs = now - Math.max(this.#sent[0] ?? now, this.#heardAt);
    if (waitedMs > this.#deadMs) this.#giveUp("lost");
    if (waitedMs < this.#overdueMs || this.#isProbing || this.#isOver) return;
    this.#isProbing = true;
    const began = this.#heardAt;
    const reached = await this.#answers();
    this.#isProbing = false;
    if (!reached && began === this.#heardAt) this.#giveUp("lost");
  }

  /** @param {DuplexMessage} message */
  #onMessage(message) {
    if (this.#isOver) return;
    this.#error = null;
    this.#heardAt = performance.now();
    switch (message.type) {
      case "queued":
      case "queue_update":
        clearTimeout(this.#late);
        this.on.queued(message);
        break;
      case "queue_done":
        this.#expect("late");
        this.on.queued({ position: 0, estimated_wait_s: null });
        break;
      case "prepared":
        clearTimeout(this.#late);
        keepNext(message);
        this.on.prepared(message);
        break;
      case "result":
        this.on.result(message, performance.now() - (this.#sent.shift() ?? performance.now()));
        break;
      case "paused":
      case "resumed":
        this.#sent = [];
        this.on.held(message.type);
        break;
      case "error":
        // Every chunk has one answer, and this may be it.
        if (message.code === "not_ready" || message.code === "invalid_state") this.#sent.shift();
        // The engine failed, and the chunks that it had are never answered.
        if (message.code === "inference_error") this.#sent = [];
        this.#error = { code: message.code, text: message.error, param: message.param ?? "" };
        this.on.error(this.#error);
        break;
      case "timeout":
        this.#end({ code: "timeout", text: message.reason });
        break;
      default:
    }
  }

  /**
   * Return why the server has closed the connection.
   *
   * @param {string} said in its close frame
   * @returns {EndReason}
   */
  #reasonOf(said) {
    if (!this.#wasOpen) return { code: "refused", text: "" };
    // It says the same in more words.
    if (this.#error) return this.#error;
    if (!said) return { code: "lost", text: "" };
    return { code: said === "Queue full" ? "queue_full" : said, text: said };
  }

  /** @param {EndReason | null} reason */
  #end(reason) {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#late);
    clearInterval(this.#watching);
    this.on.end(reason);
  }
}
