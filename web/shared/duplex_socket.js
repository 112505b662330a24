// A conversation over /ws/duplex: what is sent and what comes, and nothing of how it sounds or looks. Used once.

import { keepNext, subprotocols } from "./token.js";

const PREPARED_MS = 15_000;
const STOPPED_MS = 1_500;

/** float32 samples as the server takes them: little-endian bytes in base64. */
export function encode(samples) {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = "";
  // In parts: a call has room for some ten thousand arguments.
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}

/** The samples in such a text. */
export function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
}

export class DuplexSocket {
  #socket = null;
  #sent = [];
  #late = 0;
  #isOver = false;

  /**
   * @param {object} on what the page wants to know
   * @param {(place: {position: number, estimated_wait_s: number | null}) => void} on.queued
   * @param {(facts: object) => void} on.prepared
   * @param {(result: object, answeredMs: number) => void} on.result
   * @param {(type: "paused" | "resumed", message: object) => void} on.held
   * @param {(text: string) => void} on.error the conversation goes on
   * @param {(reason: string) => void} on.end empty when it was asked for
   */
  constructor(on) {
    this.on = on;
  }

  open({ prompt, voiceOnly }) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const id = `${voiceOnly ? "adx" : "omni"}_${Date.now().toString(36)}`;
    this.#socket = new WebSocket(`${scheme}://${location.host}/ws/duplex/${id}`, subprotocols());
    this.#socket.addEventListener("open", () => {
      this.#send({ type: "prepare", ...(prompt && { system_prompt: prompt }) });
      this.#expect("The server does not answer.");
    });
    this.#socket.addEventListener("message", (event) => this.#onMessage(JSON.parse(event.data)));
    this.#socket.addEventListener("close", (event) => this.#end(event.reason || "the connection was lost"));
  }

  /** A chunk of float32 samples at 16 kHz, and pictures as JPEG in base64. */
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

  /** Says goodbye and closes. Safe to call twice. */
  close() {
    if (!this.#send({ type: "stop" })) this.#socket?.close();
    else setTimeout(() => this.#socket.close(), STOPPED_MS);
    this.#end("");
  }

  #send(message) {
    if (this.#isOver || this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #expect(reason) {
    clearTimeout(this.#late);
    this.#late = setTimeout(() => {
      this.#end(reason);
      this.#socket.close();
    }, PREPARED_MS);
  }

  #onMessage(message) {
    if (this.#isOver) return;
    switch (message.type) {
      case "queued":
      case "queue_update":
        clearTimeout(this.#late);
        return this.on.queued(message);
      case "queue_done":
        this.#expect("The model did not become ready in time.");
        return this.on.queued({ position: 0, estimated_wait_s: null });
      case "prepared":
        clearTimeout(this.#late);
        keepNext(message);
        return this.on.prepared(message);
      case "result":
        return this.on.result(message, performance.now() - (this.#sent.shift() ?? performance.now()));
      case "paused":
      case "resumed":
        this.#sent = [];
        return this.on.held(message.type, message);
      case "error":
        // Every chunk has one answer, and this may be it.
        if (message.code === "not_ready" || message.code === "invalid_state") this.#sent.shift();
        return this.on.error(message.error);
      case "timeout":
        return this.#end(message.reason);
      default:
        return undefined;
    }
  }

  #end(reason) {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#late);
    this.on.end(reason);
  }
}
