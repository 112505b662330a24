/*
 * The sound of a page: a microphone that hears recordings, and the times at which there was nothing to play.
 *
 * Chromium's own fake microphone plays one file from its beginning on. Here words are spoken when the conversation is ready for them,
 * however slow the machine is.
 */

const STEP_MS = 10;
const LEAST_STALL_MS = 5;
const STATS_EVERY_MS = 50;
// Energy of that time, of at most 1 a second, below which nothing is heard.
const SILENT_ENERGY = 1e-7;

/** Microphone of the page in place of the browser's: the browser's device is opened as well, for its permission. */
export class Microphone {
  #context = new AudioContext();
  #output = this.#context.createMediaStreamDestination();

  constructor() {
    const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (constraints) => {
      for (const track of (await open(constraints)).getTracks()) track.stop();
      // Clients stop the tracks that they get.
      return this.#output.stream.clone();
    };
  }

  /** Return the recording at an address. */
  async load(address) {
    return this.#context.decodeAudioData(await (await fetch(address)).arrayBuffer());
  }

  /** Speak a recording to its end. */
  async say(recording) {
    const source = this.#context.createBufferSource();
    source.buffer = recording;
    source.connect(this.#output);
    await new Promise((resolve) => {
      source.addEventListener("ended", resolve, { once: true });
      source.start();
    });
  }
}

/** Record the times, in ms, in which the page ran nothing that was due. */
export function watchPage() {
  const stalls = [];
  let dueMs = performance.now() + STEP_MS;
  setTimeout(look, STEP_MS);
  function look() {
    const nowMs = performance.now();
    if (nowMs - dueMs >= LEAST_STALL_MS) stalls.push([dueMs, nowMs]);
    dueMs = nowMs + STEP_MS;
    setTimeout(look, STEP_MS);
  }
  return stalls;
}

/**
 * What a WebRTC track lacks while the bot speaks.
 *
 * `gaps`, `[from, to, ms]`: what the jitter buffer made up because nothing had come. Adjacent ones count as one gap, so that none is
 * reported as shorter than it was. `longestPauseMs`: silence between two sounds of an answer. `loudest`: level of the loudest sound,
 * of at most 1.
 */
export class TrackWatch {
  gaps = [];
  loudest = 0;
  longestPauseMs = 0;
  #read;
  #isSpeaking;
  #last = null;
  #gap = null;
  #soundMs = null;
  #timer;

  constructor(read, isSpeaking) {
    [this.#read, this.#isSpeaking] = [read, isSpeaking];
    this.#timer = setInterval(() => this.#look(), STATS_EVERY_MS);
  }

  async #look() {
    for (const stats of (await this.#read()).values()) {
      if (stats.type === "inbound-rtp" && stats.kind === "audio") this.#take(stats, performance.now());
    }
  }

  #take(stats, nowMs) {
    const last = this.#last;
    this.#last = { stats, nowMs };
    if (last === null || stats.id !== last.stats.id || !this.#isSpeaking()) {
      this.#gap = this.#soundMs = null;
      return;
    }
    const added = (name) => stats[name] - last.stats[name];
    const playedMs = added("totalSamplesDuration") * 1000;
    if (playedMs <= 0) return;
    this.loudest = Math.max(this.loudest, stats.audioLevel);
    if (added("totalAudioEnergy") > SILENT_ENERGY) {
      if (this.#soundMs !== null) this.longestPauseMs = Math.max(this.longestPauseMs, last.nowMs - this.#soundMs);
      this.#soundMs = nowMs;
    }
    const ms = ((added("concealedSamples") - added("silentConcealedSamples")) / added("totalSamplesReceived")) * playedMs;
    if (!(ms > 0)) {
      this.#gap = null;
      return;
    }
    if (this.#gap === null) this.gaps.push((this.#gap = [last.nowMs, nowMs, 0]));
    this.#gap[1] = nowMs;
    this.#gap[2] += ms;
  }

  stop() {
    clearInterval(this.#timer);
  }
}
