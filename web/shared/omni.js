// Page of full duplex over a WebSocket: sends the microphone in chunks; plays and shows the results.

import { openCamera, openMicrophone } from "./call.js";
import { DuplexPlayer } from "./duplex_player.js";
import { DuplexSocket, decode } from "./duplex_socket.js";
import { element, part, showNotice, write } from "./element.js";
import { messageOf, required } from "./guards.js";

/** @import { DuplexResult, EngineQueue, Prepared } from "../types/server.js" */

const RATE_HZ = 16_000;
// Long units are sent whole; an engine of short ones is heard in pieces of this length.
const SHORT_CHUNK_MS = 240;
const LONG_UNIT_MS = 200;
const PICTURE_WIDTH = 640;
const MOST_UNITS = 240;

const raw = new URLSearchParams(location.search).has("raw");
const parts = {
  talk: part("talk", HTMLButtonElement),
  pause: part("pause", HTMLButtonElement),
  listen: part("listen", HTMLButtonElement),
  camera: part("camera", HTMLInputElement),
  picture: part("picture", HTMLVideoElement),
  prompt: part("prompt", HTMLTextAreaElement),
  units: part("units", HTMLCanvasElement),
  latency: part("latency", HTMLElement),
  cost: part("cost", HTMLElement),
  ahead: part("ahead", HTMLElement),
  context: part("context", HTMLElement),
  said: part("said", HTMLElement),
  state: part("state", HTMLElement),
  dot: part("dot", HTMLElement),
  notice: part("notice", HTMLElement),
};

/**
 * @typedef {object} ConversationHandlers
 * @property {(place: EngineQueue) => void} queued
 * @property {(facts: Prepared) => void} ready
 * @property {(result: DuplexResult, answeredMs: number, aheadS: number) => void} result
 * @property {(isHeld: boolean) => void} held
 * @property {(text: string) => void} error
 * @property {(reason: string) => void} end
 */

class Conversation {
  /** @type {DuplexSocket | null} */
  #socket = null;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {DuplexPlayer | null} */
  #player = null;
  /** @type {MediaStream | null} */
  #microphone = null;
  /** @type {MediaStream | null} */
  #camera = null;
  #isHeld = false;
  #isClosed = false;
  #forces = false;
  #lastPicture = 0;

  /** @param {ConversationHandlers} on */
  constructor(on) {
    this.on = on;
  }

  /**
   * Open microphone, camera and connection. The user may hang up while the browser asks for permission. Throws CallError.
   *
   * @param {string} prompt
   * @param {{ sees: boolean }} options
   */
  async open(prompt, { sees }) {
    const microphone = await openMicrophone({ raw });
    if (this.#isClosed) {
      stopTracks(microphone);
      return;
    }
    this.#microphone = microphone;
    if (sees) await this.useCamera(true);
    if (this.#isClosed) return;
    const context = new AudioContext({ sampleRate: RATE_HZ });
    this.#context = context;
    await context.resume();
    if (this.#isClosed) return;
    await context.audioWorklet.addModule("/shared/capture_worklet.js");
    if (this.#isClosed) return;
    const player = new DuplexPlayer(context);
    this.#player = player;
    const processorOptions = { samples: samplesIn(SHORT_CHUNK_MS) };
    const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0, processorOptions });
    const socket = new DuplexSocket({
      queued: (place) => this.on.queued(place),
      prepared: (facts) => {
        const chunkMs = facts.unit_ms >= LONG_UNIT_MS ? facts.unit_ms : SHORT_CHUNK_MS;
        capture.port.postMessage({ samples: samplesIn(chunkMs) });
        capture.port.onmessage = ({ data }) => {
          if (!this.#isHeld) socket.chunk(data, { frames: this.#picture(), forceListen: this.#forces });
        };
        context.createMediaStreamSource(microphone).connect(capture);
        this.on.ready(facts);
      },
      result: (result, answeredMs) => {
        // Speech that the bot dropped is not played: it would talk over the user who interrupted it.
        if (result.interrupted) player.stop();
        if (result.audio_data && !this.#forces) player.play(decode(result.audio_data));
        this.on.result(result, answeredMs, player.aheadS);
      },
      held: (type) => {
        this.#isHeld = type === "paused";
        if (this.#isHeld) player.stop();
        this.on.held(this.#isHeld);
      },
      error: (text) => this.on.error(text),
      end: (reason) => this.#end(reason),
    });
    this.#socket = socket;
    socket.open({ prompt, voiceOnly: !sees });
  }

  /**
   * Show the camera, or remove it. Throws CallError.
   *
   * @param {boolean} wanted
   */
  async useCamera(wanted) {
    stopTracks(this.#camera);
    this.#camera = null;
    const camera = wanted ? await openCamera() : null;
    if (this.#isClosed) {
      stopTracks(camera);
      return;
    }
    this.#camera = camera;
    parts.picture.srcObject = camera;
    parts.picture.hidden = !camera;
    if (camera) await parts.picture.play();
  }

  /** @param {boolean} forces true while the bot must listen */
  force(forces) {
    this.#forces = forces;
    if (forces) this.#player?.stop();
  }

  pause() {
    if (this.#isHeld) this.#socket?.resume();
    else this.#socket?.pause();
  }

  close() {
    this.#isClosed = true;
    this.#socket?.close();
    this.#end("");
  }

  /** Return one picture a second, as JPEG in base64. */
  #picture() {
    const video = parts.picture;
    if (!this.#camera || !video.videoWidth || performance.now() - this.#lastPicture < 950) return [];
    this.#lastPicture = performance.now();
    const canvas = document.createElement("canvas");
    const scale = Math.min(1, PICTURE_WIDTH / video.videoWidth);
    canvas.width = video.videoWidth * scale;
    canvas.height = video.videoHeight * scale;
    penOf(canvas).drawImage(video, 0, 0, canvas.width, canvas.height);
    return [canvas.toDataURL("image/jpeg", 0.7).split(",")[1]];
  }

  /** @param {string} reason */
  #end(reason) {
    if (!this.#microphone) return;
    stopTracks(this.#microphone);
    stopTracks(this.#camera);
    this.#player?.stop();
    this.#context?.close();
    this.#microphone = this.#camera = this.#context = null;
    this.on.end(reason);
  }
}

/** @param {number} milliseconds */
function samplesIn(milliseconds) {
  return (RATE_HZ * milliseconds) / 1000;
}

/** @param {MediaStream | null} stream */
function stopTracks(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

/** @param {HTMLCanvasElement} canvas */
function penOf(canvas) {
  return required(canvas.getContext("2d"), "the canvas");
}

/** @type {boolean[]} true for a unit in which the bot speaks */
const units = [];

function draw() {
  const canvas = parts.units;
  const style = getComputedStyle(document.documentElement);
  canvas.width = canvas.clientWidth * devicePixelRatio;
  canvas.height = canvas.clientHeight * devicePixelRatio;
  const pen = penOf(canvas);
  const width = Math.max(3, canvas.width / MOST_UNITS);
  units.slice(-Math.floor(canvas.width / width)).forEach((speaks, place) => {
    pen.fillStyle = style.getPropertyValue(speaks ? "--accent" : "--edge");
    const height = canvas.height * (speaks ? 0.8 : 0.3);
    pen.fillRect(place * width, canvas.height - height, width - 1, height);
  });
}

/**
 * @param {string} state
 * @param {string} dot its class
 */
function show(state, dot) {
  write(parts.state, state);
  parts.dot.className = `dot ${dot}`;
}

/** @type {(text: string, options?: { bad?: boolean }) => void} */
const note = (text, options) => showNotice(parts.notice, text, options);
/** @type {Conversation | null} */
let conversation = null;
/** @type {HTMLElement | null} paragraph of the turn that the bot is speaking */
let turn = null;

/** @param {DuplexResult} result */
function say(result) {
  if (result.text) {
    if (!turn) parts.said.append((turn = element("p", "", "")));
    turn.textContent += result.text;
    parts.said.scrollTop = parts.said.scrollHeight;
  }
  if (result.interrupted && turn) turn.classList.add("cut");
  if (result.end_of_turn || result.interrupted) turn = null;
}

function idle() {
  conversation = null;
  write(parts.talk, "Talk");
  parts.pause.disabled = parts.listen.disabled = true;
  parts.pause.setAttribute("aria-pressed", "false");
  parts.prompt.disabled = false;
  parts.camera.checked = false;
  parts.picture.hidden = true;
}

async function start() {
  note("");
  show("Connecting", "");
  write(parts.talk, "Hang up");
  parts.prompt.disabled = true;
  const mine = new Conversation({
    queued: ({ position, estimated_wait_s: waitS }) => {
      if (!position) {
        note("");
        return;
      }
      show("Waiting", "");
      const wait = typeof waitS === "number" ? `, about ${Math.max(1, Math.round(waitS))} s to go` : "";
      note(`All lines are in use. You are number ${position} in the queue${wait}.`);
    },
    ready: () => {
      note("");
      show("Listening", "listening");
      parts.pause.disabled = parts.listen.disabled = false;
    },
    result: (result, answeredMs, aheadS) => {
      units.push(!result.is_listen);
      units.splice(0, units.length - MOST_UNITS);
      draw();
      say(result);
      note("");
      show(aheadS > 0 ? "Speaking" : "Listening", aheadS > 0 ? "speaking" : "listening");
      write(parts.latency, `${Math.round(answeredMs)} ms`);
      write(parts.cost, `${Math.round(result.wall_clock_ms)} ms`);
      write(parts.ahead, `${Math.round(aheadS * 1000)} ms`);
      write(parts.context, result.kv_cache_length ? `${result.kv_cache_length} tokens` : "–");
    },
    held: (isHeld) => {
      show(isHeld ? "Paused" : "Listening", isHeld ? "" : "listening");
      parts.pause.setAttribute("aria-pressed", String(isHeld));
      write(parts.pause, isHeld ? "Resume" : "Pause");
    },
    error: (text) => note(`The server reports: ${text}.`, { bad: true }),
    end: (reason) => {
      if (conversation !== mine) return;
      idle();
      show(reason ? "Ended" : "Ready", reason ? "bad" : "");
      if (reason) note(`The conversation is over: ${reason}.`, { bad: true });
    },
  });
  conversation = mine;
  try {
    await mine.open(parts.prompt.value.trim(), { sees: parts.camera.checked });
  } catch (error) {
    const isCurrent = conversation === mine;
    mine.close();
    if (!isCurrent) return; // the user hung up
    idle();
    show("Ready", "bad");
    note(messageOf(error), { bad: true });
  }
}

parts.talk.addEventListener("click", () => {
  if (!conversation) {
    start();
    return;
  }
  conversation.close();
  // Also where nothing had begun that could end.
  if (conversation) {
    idle();
    show("Ready", "");
  }
});
parts.pause.addEventListener("click", () => conversation?.pause());
parts.listen.addEventListener("pointerdown", () => conversation?.force(true));
for (const name of ["pointerup", "pointerleave", "blur"]) {
  parts.listen.addEventListener(name, () => conversation?.force(false));
}
/** @type {(event: KeyboardEvent, forces: boolean) => void} */
const onKey = (event, forces) => {
  if ([" ", "Enter"].includes(event.key)) conversation?.force(forces);
};
parts.listen.addEventListener("keydown", (event) => onKey(event, true));
parts.listen.addEventListener("keyup", (event) => onKey(event, false));
parts.camera.addEventListener("change", async () => {
  try {
    await conversation?.useCamera(parts.camera.checked);
  } catch (error) {
    parts.camera.checked = false;
    note(messageOf(error), { bad: true });
  }
});
addEventListener("resize", draw);
addEventListener("pagehide", () => conversation?.close());
