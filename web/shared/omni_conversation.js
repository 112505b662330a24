// One conversation with a full-duplex model over /ws/duplex: the microphone or a file in its place, the connection, and the bot's
// voice. Decides what the model hears and when the bot is heard; the page shows it. Used once.

import { openMicrophone } from "./call.js";
import { DuplexPlayer } from "./duplex_player.js";
import { DuplexSocket, decode } from "./duplex_socket.js";
import { ForcedListening } from "./forced_listening.js";
import { stopTracks } from "./sight.js";

/** @import { DuplexResult, EngineQueue, Prepared } from "../types/server.js" */
/** @import { EndReason, ServerError } from "./duplex_socket.js" */
/** @import { FileSource } from "./file_source.js" */

const RATE_HZ = 16_000;
// Long units are sent whole; an engine of short ones is heard in pieces of this length.
const SHORT_CHUNK_MS = 240;
const LONG_UNIT_MS = 200;

/**
 * @typedef {object} ConversationHandlers
 * @property {() => string[]} frames pictures for the next chunk, as JPEG in base64
 * @property {(stream: MediaStream) => void} microphone it was opened
 * @property {() => void} microphoneGone it ended, and no other one could be opened
 * @property {(place: EngineQueue) => void} queued
 * @property {(facts: Prepared) => void} ready
 * @property {(result: DuplexResult, answeredMs: number, aheadS: number) => void} result
 * @property {(isHeld: boolean) => void} held
 * @property {(atS: number) => void} fileProgress
 * @property {() => void} fileEnd
 * @property {(error: ServerError) => void} error
 * @property {(reason: EndReason | null) => void} end null when this side ended it
 */
/**
 * @typedef {object} Beginning
 * @property {string} prompt
 * @property {string} voice reference voice, as float32 samples at 16 kHz in base64; empty for the deployment's
 * @property {boolean} sees
 * @property {FileSource | null} file in place of the microphone
 */

export class Conversation {
  #on;
  #raw;
  /** @type {DuplexSocket | null} */
  #socket = null;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {DuplexPlayer | null} */
  #player = null;
  /** @type {AudioWorkletNode | null} */
  #capture = null;
  /** @type {MediaStream | null} */
  #microphone = null;
  /** @type {MediaStreamAudioSourceNode | null} */
  #input = null;
  /** @type {FileSource | null} */
  #file = null;
  #forced = new ForcedListening();
  #isReady = false;
  #isHeld = false;
  #isClosed = false;
  #isOver = false;
  #opened = 0;

  /**
   * @param {ConversationHandlers} on
   * @param {{ raw: boolean }} options as for openMicrophone
   */
  constructor(on, { raw }) {
    this.#on = on;
    this.#raw = raw;
  }

  /**
   * Open microphone and connection. The user may hang up while the browser asks for permission. Throws CallError.
   *
   * @param {Beginning} beginning
   * @param {string} device the chosen microphone
   */
  async open({ prompt, voice, sees, file }, device) {
    this.#file = file;
    if (!file) await this.useMicrophone(device);
    if (this.#isClosed) return;
    const context = new AudioContext({ sampleRate: RATE_HZ });
    this.#context = context;
    await context.resume();
    if (this.#isClosed) return;
    await context.audioWorklet.addModule("/shared/capture_worklet.js");
    if (this.#isClosed) return;
    this.#player = new DuplexPlayer(context);
    const processorOptions = { samples: samplesIn(SHORT_CHUNK_MS) };
    const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions });
    // Silence, so that chunks go on between two microphones, and after a file.
    const silence = new ConstantSourceNode(context, { offset: 0 });
    silence.connect(capture);
    silence.start();
    this.#capture = capture;
    this.#connectMicrophone();
    this.#socket = this.#connect(this.#player, capture);
    this.#socket.open({ prompt, voice, voiceOnly: !sees });
  }

  /** Words of the bot, and the time that is heard at this moment. */
  get speech() {
    return this.#player && { spoken: this.#player.spoken, heardS: this.#player.heardS };
  }

  get hasMicrophone() {
    return this.#microphone !== null;
  }

  /**
   * Open a microphone, in place of the one that is open. Throws CallError.
   *
   * @param {string} device
   */
  async useMicrophone(device) {
    this.#opened += 1;
    const opened = this.#opened;
    const stream = await openMicrophone({ raw: this.#raw, deviceId: device });
    if (this.#isClosed || opened !== this.#opened) {
      stopTracks(stream);
      return;
    }
    this.#dropMicrophone();
    this.#microphone = stream;
    stream.getAudioTracks()[0].addEventListener("ended", () => this.#replaceMicrophone(stream));
    this.#connectMicrophone();
    this.#on.microphone(stream);
  }

  /**
   * Let the model hear a file in place of the microphone, from its beginning.
   *
   * @param {FileSource} file
   */
  useFile(file) {
    this.stopFile();
    this.#file = file;
    this.#connectMicrophone();
    if (this.#isReady) this.#playFile(file);
  }

  /** Let the model hear the microphone again. */
  stopFile() {
    this.#file?.close();
    this.#file = null;
    this.#connectMicrophone();
  }

  /** @param {boolean} forces true while the bot must listen */
  force(forces) {
    if (!forces) this.#forced.release();
    else if (this.#isReady) {
      this.#forced.press();
      this.#player?.stop();
    }
  }

  pause() {
    if (this.#isHeld) {
      this.#socket?.resume();
      return;
    }
    // At once: what the bot says until the server knows of it is not heard.
    this.#player?.hold();
    this.#socket?.pause();
  }

  close() {
    this.#isClosed = true;
    this.#socket?.close();
    this.#end(null);
  }

  /**
   * @param {DuplexPlayer} player
   * @param {AudioWorkletNode} capture
   */
  #connect(player, capture) {
    const socket = new DuplexSocket({
      queued: (place) => this.#on.queued(place),
      prepared: (facts) => {
        const chunkMs = facts.unit_ms >= LONG_UNIT_MS ? facts.unit_ms : SHORT_CHUNK_MS;
        capture.port.postMessage({ samples: samplesIn(chunkMs) });
        capture.port.onmessage = ({ data }) => {
          if (!this.#isHeld) socket.chunk(data, { frames: this.#on.frames(), forceListen: this.#forced.takeOrder() });
        };
        this.#isReady = true;
        if (this.#file) this.#playFile(this.#file);
        this.#on.ready(facts);
      },
      result: (result, answeredMs) => {
        this.#hear(player, result);
        this.#on.result(result, answeredMs, player.aheadS);
      },
      held: (type) => {
        this.#isHeld = type === "paused";
        if (this.#isHeld) player.hold();
        else player.release();
        this.#file?.hold(this.#isHeld);
        this.#on.held(this.#isHeld);
      },
      error: (error) => {
        // The request to pause may be what was refused.
        if (error.code === "invalid_state" && !this.#isHeld) player.release();
        this.#on.error(error);
      },
      end: (reason) => this.#end(reason),
    });
    return socket;
  }

  /**
   * @param {DuplexPlayer} player
   * @param {DuplexResult} result
   */
  #hear(player, result) {
    const { text, audio_data: audio, interrupted, end_of_turn: ends } = result;
    if (interrupted) {
      // Speech that the bot dropped is not played: it would talk over the user who interrupted it.
      player.stop();
      if (!audio) player.skip(text);
      player.endTurn();
    }
    if (!this.#forced.admits(result)) player.skip(text);
    else if (audio) player.play(decode(audio), text);
    else if (!interrupted) player.play(new Float32Array(), text);
    if (ends) player.endTurn();
  }

  /** @param {FileSource} file */
  async #playFile(file) {
    if (!this.#context || !this.#capture) return;
    const end = () => {
      if (file !== this.#file) return;
      this.stopFile();
      this.#on.fileEnd();
    };
    const on = { progress: (/** @type {number} */ atS) => this.#on.fileProgress(atS), end };
    await file.play(this.#context, this.#capture, on, { isHeld: this.#isHeld });
  }

  /** Connect what the model hears: the microphone, unless a file is in its place. */
  #connectMicrophone() {
    this.#input?.disconnect();
    this.#input = null;
    if (!this.#context || !this.#capture || !this.#microphone || this.#file) return;
    this.#input = this.#context.createMediaStreamSource(this.#microphone);
    this.#input.connect(this.#capture);
  }

  /** @param {MediaStream} stream that has ended */
  async #replaceMicrophone(stream) {
    if (stream !== this.#microphone) return;
    this.#dropMicrophone();
    try {
      await this.useMicrophone("");
    } catch {
      if (!this.#isClosed) this.#on.microphoneGone();
    }
  }

  #dropMicrophone() {
    this.#input?.disconnect();
    this.#input = null;
    stopTracks(this.#microphone);
    this.#microphone = null;
  }

  /** @param {EndReason | null} reason */
  #end(reason) {
    if (this.#isOver) return;
    this.#isOver = this.#isClosed = true;
    this.#dropMicrophone();
    this.#file?.close();
    this.#file = null;
    this.#player?.close();
    if (this.#capture) this.#capture.port.onmessage = null;
    this.#capture = null;
    this.#context?.close();
    this.#context = null;
    this.#on.end(reason);
  }
}

/** @param {number} milliseconds */
function samplesIn(milliseconds) {
  return (RATE_HZ * milliseconds) / 1000;
}
