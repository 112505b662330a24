// A conversation over /ws/duplex: messages in both directions, without their sound and their appearance. Used once.

import { keepNext, subprotocols } from "./token.js";

/** @import { DuplexMessage, DuplexResult, EngineQueue, Prepared } from "../types/server.js" */

const PREPARED_MS = 15_000;
const STOPPED_MS = 1_500;

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

export class DuplexSocket {
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {number[]} times at which the chunks that have no answer yet were sent */
  #sent = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #late;
  #wasOpen = false;
  #isOver = false;
  /** @type {ServerError | null} of the last message: the reason of an end that follows */
  #error = null;

  /** @param {DuplexHandlers} on */
  constructor(on) {
    this.on = on;
  }

  /** @param {{ prompt: string, voice?: string, voiceOnly: boolean }} options `voice`: as for `encode`, at 16 kHz */
  open({ prompt, voice = "", voiceOnly }) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const id = `${voiceOnly ? "adx" : "omni"}_${Date.now().toString(36)}`;
    const socket = new WebSocket(`${scheme}://${location.host}/ws/duplex/${id}`, subprotocols());
    this.#socket = socket;
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

  /** @param {string} code of the end, if the engine is not ready in time */
  #expect(code) {
    clearTimeout(this.#late);
    this.#late = setTimeout(() => {
      this.#end({ code, text: "" });
      this.#socket?.close();
    }, PREPARED_MS);
  }

  /** @param {DuplexMessage} message */
  #onMessage(message) {
    if (this.#isOver) return;
    this.#error = null;
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
    this.on.end(reason);
  }
}
