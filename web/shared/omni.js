// The page of full duplex over a WebSocket: the microphone in chunks, what comes back played and shown.

import { openCamera, openMicrophone } from "./call.js";
import { DuplexPlayer } from "./duplex_player.js";
import { DuplexSocket, decode } from "./duplex_socket.js";
import { element, part, showNotice, write } from "./element.js";

const RATE_HZ = 16_000;
// Long units are sent whole; an engine of short ones is heard in pieces of this length.
const SHORT_CHUNK_MS = 240;
const LONG_UNIT_MS = 200;
const PICTURE_WIDTH = 640;
const MOST_UNITS = 240;

const raw = new URLSearchParams(location.search).has("raw");
const parts = Object.fromEntries(
  ["talk", "pause", "listen", "camera", "picture", "prompt", "units", "latency", "cost", "ahead", "context", "said",
    "state", "dot", "notice"].map((name) => [name, part(name)]),
);

class Conversation {
  #socket = null;
  #context = null;
  #capture = null;
  #player = null;
  #microphone = null;
  #camera = null;
  #isHeld = false;
  #isClosed = false;
  #isReady = false;
  #forces = false;
  #lastPicture = 0;

  constructor(on) {
    this.on = on;
  }

  get isHeld() {
    return this.#isHeld;
  }

  /** Throws CallError. */
  async open(prompt, { sees }) {
    this.#microphone = await openMicrophone({ raw });
    if (this.#isClosed) return this.#end("");
    if (sees) await this.useCamera(true);
    this.#context = new AudioContext({ sampleRate: RATE_HZ });
    await this.#context.resume();
    await this.#context.audioWorklet.addModule("/shared/capture_worklet.js");
    // The person may have hung up while the browser asked.
    if (this.#isClosed) return this.#end("");
    this.#player = new DuplexPlayer(this.#context);
    const samples = this.#samples(SHORT_CHUNK_MS);
    this.#capture = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0, processorOptions: { samples } });
    this.#capture.port.onmessage = ({ data }) => this.#heard(data);
    this.#socket = new DuplexSocket({
      queued: (place) => this.on.queued(place),
      prepared: (facts) => this.#prepared(facts),
      result: (result, answeredMs) => this.#result(result, answeredMs),
      held: (type) => this.#held(type),
      error: (text) => this.on.error(text),
      end: (reason) => this.#end(reason),
    });
    return this.#socket.open({ prompt, voiceOnly: !sees });
  }

  /** Shows what the camera sees, or nothing more (null). Throws CallError. */
  async useCamera(wanted) {
    this.#camera?.getTracks().forEach((track) => track.stop());
    this.#camera = wanted ? await openCamera() : null;
    parts.picture.srcObject = this.#camera;
    parts.picture.hidden = !this.#camera;
    if (this.#camera) await parts.picture.play();
  }

  force(forces) {
    this.#forces = forces;
    if (forces) this.#player?.stop();
  }

  pause() {
    if (this.#isHeld) this.#socket.resume();
    else this.#socket.pause();
  }

  close() {
    this.#isClosed = true;
    this.#socket?.close();
    this.#end("");
  }

  #samples(milliseconds) {
    return (RATE_HZ * milliseconds) / 1000;
  }

  #prepared(facts) {
    this.#isReady = true;
    const chunkMs = facts.unit_ms >= LONG_UNIT_MS ? facts.unit_ms : SHORT_CHUNK_MS;
    this.#capture.port.postMessage({ samples: this.#samples(chunkMs) });
    this.#context.createMediaStreamSource(this.#microphone).connect(this.#capture);
    this.on.ready(facts);
  }

  #heard(samples) {
    if (!this.#isReady || this.#isHeld) return;
    this.#socket.chunk(samples, { frames: this.#picture(), forceListen: this.#forces });
  }

  /** One picture a second, as JPEG in base64. */
  #picture() {
    const video = parts.picture;
    if (!this.#camera || !video.videoWidth || performance.now() - this.#lastPicture < 950) return [];
    this.#lastPicture = performance.now();
    const canvas = document.createElement("canvas");
    const scale = Math.min(1, PICTURE_WIDTH / video.videoWidth);
    canvas.width = video.videoWidth * scale;
    canvas.height = video.videoHeight * scale;
    canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
    return [canvas.toDataURL("image/jpeg", 0.7).split(",")[1]];
  }

  #result(result, answeredMs) {
    // What the bot took back is not played: it would talk over the person who interrupted it.
    if (result.interrupted) this.#player.stop();
    if (result.audio_data && !this.#forces) this.#player.play(decode(result.audio_data));
    this.on.result(result, answeredMs, this.#player.aheadS);
  }

  #held(type) {
    this.#isHeld = type === "paused";
    if (this.#isHeld) this.#player.stop();
    this.on.held(this.#isHeld);
  }

  #end(reason) {
    const context = this.#context;
    if (!this.#microphone) return;
    this.#microphone.getTracks().forEach((track) => track.stop());
    this.#camera?.getTracks().forEach((track) => track.stop());
    this.#microphone = this.#camera = this.#context = null;
    this.#player?.stop();
    context?.close();
    this.on.end(reason);
  }
}

const units = [];

function draw() {
  const canvas = parts.units;
  const style = getComputedStyle(document.documentElement);
  canvas.width = canvas.clientWidth * devicePixelRatio;
  canvas.height = canvas.clientHeight * devicePixelRatio;
  const pen = canvas.getContext("2d");
  const width = Math.max(3, canvas.width / MOST_UNITS);
  units.slice(-Math.floor(canvas.width / width)).forEach((speaks, place) => {
    pen.fillStyle = style.getPropertyValue(speaks ? "--accent" : "--edge");
    const height = canvas.height * (speaks ? 0.8 : 0.3);
    pen.fillRect(place * width, canvas.height - height, width - 1, height);
  });
}

function show(state, dot) {
  write(parts.state, state);
  parts.dot.className = `dot ${dot}`;
}

const note = (text, options) => showNotice(parts.notice, text, options);
let conversation = null;
let turn = null;

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
      if (!position) return note("");
      show("Waiting", "");
      const wait = Number.isFinite(waitS) ? `, about ${Math.max(1, Math.round(waitS))} s to go` : "";
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
    mine.close();
    if (conversation === mine) idle();
    show("Ready", "bad");
    note(error.message, { bad: true });
  }
}

parts.talk.addEventListener("click", () => {
  if (!conversation) return start();
  conversation.close();
  // Also where nothing had begun that could end.
  if (conversation) {
    idle();
    show("Ready", "");
  }
  return undefined;
});
parts.pause.addEventListener("click", () => conversation?.pause());
for (const [name, forces] of [["pointerdown", true], ["pointerup", false], ["pointerleave", false], ["blur", false]]) {
  parts.listen.addEventListener(name, () => conversation?.force(forces));
}
for (const [name, forces] of [["keydown", true], ["keyup", false]]) {
  parts.listen.addEventListener(name, (event) => [" ", "Enter"].includes(event.key) && conversation?.force(forces));
}
parts.camera.addEventListener("change", async () => {
  try {
    await conversation?.useCamera(parts.camera.checked);
  } catch (error) {
    parts.camera.checked = false;
    note(error.message, { bad: true });
  }
});
addEventListener("resize", draw);
addEventListener("pagehide", () => conversation?.close());
