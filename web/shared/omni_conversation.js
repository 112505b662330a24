// One conversation with a full-duplex model over /ws/duplex: the connection, what the model hears of the page's sound, and the bot's
// voice. Decides what is sent and when the bot is heard, and goes on over another connection after one was lost; the page shows it.
// Used once.

import { DuplexPlayer } from "./duplex_player.js";
import { DuplexSocket, decode } from "./duplex_socket.js";
import { ForcedListening } from "./forced_listening.js";
import { required } from "./guards.js";
import { pauseMs } from "./reconnection.js";

/** @import { DuplexResult, EngineQueue, HeardLatency, Prepared } from "../types/server.js" */
/** @import { CallSound } from "./call_sound.js" */
/** @import { EndReason, ServerError } from "./duplex_socket.js" */
/** @import { FileSource } from "./file_source.js" */
/** @import { NodeVoice } from "./voice_output.js" */

export const RATE_HZ = 16_000;
// Long units are sent whole; an engine of short ones is heard in pieces of this length.
const SHORT_CHUNK_MS = 240;
const LONG_UNIT_MS = 200;
// Pictures of one chunk, as the server takes them.
const MOST_PICTURES = 4;
// As on the page of a call: a server that starts anew comes back within that time.
const RECONNECT_MS = 60_000;
const AGAIN_MS = 2_000;
const LONGEST_AGAIN_MS = 10_000;
/** Ends after which the conversation may go on, where it had begun. */
const PASSING = new Set(["lost", "silent", "late", "refused", "stopping", "server_shutdown"]);
const ENDED_HERE = new Set(["lost", "stopping", "server_shutdown"]);

/**
 * @typedef {object} ConversationHandlers
 * @property {() => string[]} frames pictures for the next chunk, as JPEG in base64
 * @property {(place: EngineQueue) => void} queued
 * @property {(facts: Prepared) => void} ready it begins, or goes on over another connection
 * @property {(reason: EndReason) => void} lost another connection is looked for
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
  #sound;
  #output;
  #link;
  /** @type {DuplexSocket | null} */
  #socket = null;
  /** @type {DuplexPlayer | null} */
  #player = null;
  /** @type {AudioWorkletNode | null} */
  #capture = null;
  /** @type {MediaStreamAudioSourceNode | null} */
  #input = null;
  /** @type {Omit<Beginning, "file"> | null} */
  #beginning = null;
  /** @type {FileSource | null} */
  #file = null;
  #playsFile = false; // it has begun
  /** @type {string[]} shown by the user, for the next chunk */
  #pictures = [];
  #forced = new ForcedListening();
  #session = "";
  #isReady = false;
  #isHeld = false;
  #isClosed = false;
  #isOver = false;

  /**
   * @param {ConversationHandlers} on
   * @param {{ sound: CallSound, output: NodeVoice }} page its sound, which has begun
   * @param {{ answers?: () => Promise<boolean> }} [link] as for DuplexSocket
   */
  constructor(on, { sound, output }, link = {}) {
    this.#on = on;
    this.#sound = sound;
    this.#output = output;
    this.#link = link;
  }

  get closed() {
    return this.#isClosed;
  }

  /**
   * Open the connection. The user may hang up meanwhile.
   *
   * @param {Beginning} beginning
   */
  async open({ file, ...beginning }) {
    this.#beginning = beginning;
    this.#file = file;
    const context = required(this.#sound.context, "the audio");
    await context.resume();
    if (this.#isClosed) return;
    await context.audioWorklet.addModule("/shared/capture_worklet.js");
    if (this.#isClosed) return;
    this.#player = new DuplexPlayer(context, required(this.#output.input, "the output"));
    const processorOptions = { samples: samplesIn(SHORT_CHUNK_MS) };
    const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions });
    // Silence, so that chunks go on between two microphones, and after a file.
    const silence = new ConstantSourceNode(context, { offset: 0 });
    silence.connect(capture);
    silence.start();
    this.#capture = capture;
    await this.send(this.#sound.stream);
    this.#sound.play(required(this.#output.stream, "the output"));
    this.#connect(this.#player, capture);
  }

  /** Words of the bot, and the time that is heard at this moment. */
  get speech() {
    return this.#player && { spoken: this.#player.spoken, heardS: this.#player.heardS };
  }

  /**
   * Let the model hear another sound from now on; null for none.
   *
   * @param {MediaStream | null} sound
   */
  async send(sound) {
    this.#input?.disconnect();
    this.#input = null;
    const { context } = this.#sound;
    if (!context || !this.#capture || !sound) return;
    this.#input = context.createMediaStreamSource(sound);
    this.#input.connect(this.#capture);
  }

  /** Return the way of the sound, of which a socket reports nothing. */
  async transit() {
    return { round_trip_ms: 0, jitter_buffer_ms: 0 };
  }

  /**
   * Send typed text; it is answered by the deployment's own model. Return whether it was sent.
   *
   * @param {string} text
   */
  type(text) {
    if (!this.#isReady || !this.#socket?.type(text)) return false;
    this.#player?.endTurn();
    return true;
  }

  /**
   * Report the latency of an answer at the user's ear.
   *
   * @param {HeardLatency} heard
   */
  report(heard) {
    this.#socket?.report(heard);
  }

  /**
   * Show pictures with the next chunk.
   *
   * @param {string[]} pictures as JPEG in base64
   */
  show(pictures) {
    this.#pictures = [...this.#pictures, ...pictures].slice(-MOST_PICTURES);
  }

  /**
   * Let the model hear a file in place of the microphone, from its beginning.
   *
   * @param {FileSource} file
   */
  useFile(file) {
    this.stopFile();
    this.#file = file;
    if (this.#isReady) this.#playFile(file);
  }

  /** Let the model hear the microphone again. */
  stopFile() {
    this.#file?.close();
    this.#file = null;
    this.#playsFile = false;
    this.#sound.withdraw();
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
   * Connect; return a promise of null once that is up, and of the reason where it fails.
   *
   * @param {DuplexPlayer} player
   * @param {AudioWorkletNode} capture
   * @param {number} [openMs]
   * @returns {Promise<EndReason | null>}
   */
  #connect(player, capture, openMs) {
    const { prompt, voice, sees } = required(this.#beginning, "a beginning");
    return new Promise((resolve) => {
      const socket = new DuplexSocket({
        queued: (place) => this.#on.queued(place),
        prepared: (facts) => {
          resolve(null);
          this.#begin(socket, capture, facts);
        },
        result: (result, answeredMs) => {
          this.#hear(player, result);
          this.#on.result(result, answeredMs, player.aheadS);
        },
        held: (type) => this.#hold(player, type === "paused"),
        error: (error) => {
          // The request to pause may be what was refused.
          if (error.code === "invalid_state" && !this.#isHeld) player.release();
          // Of an attempt to go on: another one follows.
          if (this.#isReady || !this.#session) this.#on.error(error);
        },
        end: (reason) => {
          this.#onEnd(reason);
          resolve(reason);
        },
      }, this.#link);
      this.#socket = socket;
      socket.open({ prompt, voice, voiceOnly: !sees, session: this.#session, openMs });
    });
  }

  /**
   * @param {DuplexSocket} socket
   * @param {AudioWorkletNode} capture
   * @param {Prepared} facts
   */
  #begin(socket, capture, facts) {
    const chunkMs = facts.unit_ms >= LONG_UNIT_MS ? facts.unit_ms : SHORT_CHUNK_MS;
    this.#session = facts.session_id;
    this.#isReady = true;
    capture.port.postMessage({ samples: samplesIn(chunkMs) });
    capture.port.onmessage = ({ data }) => {
      if (!this.#isHeld) socket.chunk(data, { frames: this.#frames(), forceListen: this.#forced.takeOrder() });
    };
    // It may have been chosen while there was no connection.
    if (this.#file && !this.#playsFile) this.#playFile(this.#file);
    // It was paused when its connection was lost, and still is.
    if (this.#isHeld) socket.pause();
    else {
      this.#player?.release();
      this.#file?.hold(false);
    }
    this.#on.ready(facts);
  }

  #frames() {
    return [...this.#pictures.splice(0), ...this.#on.frames()].slice(0, MOST_PICTURES);
  }

  /**
   * @param {DuplexPlayer} player
   * @param {boolean} isHeld
   */
  #hold(player, isHeld) {
    this.#isHeld = isHeld;
    if (isHeld) player.hold();
    else player.release();
    this.#file?.hold(isHeld);
    this.#on.held(isHeld);
  }

  /** @param {EndReason | null} reason of one connection */
  #onEnd(reason) {
    if (this.#isOver || this.#isClosed) return;
    if (!this.#isReady && this.#session) return; // of an attempt, which is followed by another one
    if (!this.#session || !reason || !ENDED_HERE.has(reason.code)) this.#end(reason);
    else this.#goOn(reason);
  }

  /**
   * Go on over another connection, in the same conversation.
   *
   * @param {EndReason} reason for which there is none
   */
  async #goOn(reason) {
    const lostAt = performance.now();
    const [player, capture] = [required(this.#player, "the player"), required(this.#capture, "the capture")];
    this.#isReady = false;
    capture.port.onmessage = null;
    // What was being said is not played later: the model goes on from what was heard.
    player.hold();
    this.#file?.hold(true);
    this.#on.lost(reason);
    for (let requestMs = AGAIN_MS; !this.#isClosed; ) {
      const beganAt = performance.now();
      const failure = await this.#connect(player, capture, requestMs);
      if (!failure || this.#isClosed) return;
      const [tookMs, sinceMs] = [performance.now() - beganAt, performance.now() - lostAt];
      if (!PASSING.has(failure.code) || sinceMs > RECONNECT_MS) {
        this.#end(failure.code === "refused" ? reason : failure);
        return;
      }
      if (tookMs >= requestMs) requestMs = Math.min(1.5 * requestMs, LONGEST_AGAIN_MS);
      const pause = pauseMs({ status: 0, tookMs, sinceMs });
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
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
    const { context } = this.#sound;
    const target = context && this.#sound.insert();
    if (!context || !target) return;
    this.#playsFile = true;
    const end = () => {
      if (file !== this.#file) return;
      this.stopFile();
      this.#on.fileEnd();
    };
    const on = { progress: (/** @type {number} */ atS) => this.#on.fileProgress(atS), end };
    await file.play(context, target, on, { isHeld: this.#isHeld });
  }

  /** @param {EndReason | null} reason */
  #end(reason) {
    if (this.#isOver) return;
    this.#isOver = this.#isClosed = true;
    this.#input?.disconnect();
    this.#input = null;
    this.#file?.close();
    this.#file = null;
    this.#player?.close();
    if (this.#capture) this.#capture.port.onmessage = null;
    this.#capture = null;
    this.#on.end(reason);
  }
}

/** @param {number} milliseconds */
function samplesIn(milliseconds) {
  return (RATE_HZ * milliseconds) / 1000;
}
