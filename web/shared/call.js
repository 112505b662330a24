// One call: microphone, peer connection, data channel. Decides the order in which they are opened and what a failure is called;
// the meaning of the messages is left to the page. A Call is used once. Every wait has a deadline; close() ends all of it, also
// in the middle of opening.

import { within } from "./deadline.js";
import { nameOf, required } from "./guards.js";
import { t } from "./language.js";
import { authorization, keepNext } from "./token.js";

/** @import { Attached, CallAnswer, ChannelMessage, RtviMessage, StartedCall } from "../types/server.js" */

const REQUEST_MS = 10_000;
const CONNECT_MS = 15_000;
// The offer goes out with the first candidate, an address of this machine; the others follow one by one. A browser takes 0.1 s for
// all of them, and a second or more where one of its networks does not reach the STUN server.
const GATHER_MS = 1_000;
const PING_MS = 1_000;
// The server sends audio all the time, also in silence. Without any for this long the connection is dead; browsers report that after
// some five seconds only. The server gives a silent browser up after 3.5 s.
const LOST_MS = 2_500;
const LOOK_MS = 500;
// Failures of a device that is there. For an absent one, the errors of browsers differ.
const FOUND = ["NotAllowedError", "NotReadableError", "AbortError"];

/**
 * @typedef {object} CallHandlers
 * @property {(message: RtviMessage) => void} message
 * @property {(stream: MediaStream) => void} sound the bot's voice
 * @property {(error: CallError | null) => void} end the other side ended the call (null) or it was lost
 */
/**
 * @typedef {object} CallOptions
 * @property {boolean} raw as for openMicrophone: processing of a microphone that is added later
 * @property {string} mode "cascade", "duplex", or "desk" for a human who speaks to the caller of the session
 * @property {boolean} sees whether a camera may be added
 * @property {string} [desk] id of the desk that has the session
 * @property {Record<string, string>} [chosen] voice, preset, reference voice and instructions of the call
 * @property {MediaStream | null} [microphone] of the caller, where the sound that is sent is made of it
 * @property {boolean} [reconnects] the call goes on after its connection was lost: the bot says the rest of its reply
 * @property {boolean} [held] the call was on hold when its connection was lost, and still is
 * @property {number} [requestMs] longest wait for the server's answers
 */

/** Failure to open or to keep a call, in words for the user. */
export class CallError extends Error {
  /**
   * @param {string} message
   * @param {number} [status] of the server's refusal; 0 when it was none
   */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * Open the microphone. Throws CallError.
 *
 * @param {{ raw: boolean, deviceId?: string }} options `raw` leaves the signal as it is (studio microphones, tests); where the
 *   device is absent, the browser opens another one
 */
export async function openMicrophone({ raw, deviceId = "" }) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new CallError(t("microphone_needs_https"));
  }
  const processed = !raw;
  const sound = { echoCancellation: processed, noiseSuppression: processed, autoGainControl: processed };
  return await openDevice("microphone", (choice) => ({ audio: { ...sound, ...choice } }), deviceId);
}

/**
 * Open the camera. Throws CallError.
 *
 * @param {string} [deviceId] as for openMicrophone
 * @param {"user" | "environment"} [facing] side of a telephone, where no device is chosen
 */
export async function openCamera(deviceId = "", facing) {
  if (!navigator.mediaDevices?.getUserMedia) throw new CallError(t("camera_needs_https"));
  const side = facing && { facingMode: { ideal: facing } };
  const picture = { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 5 }, ...side };
  return await openDevice("camera", (choice) => ({ video: { ...picture, ...choice } }), deviceId);
}

/**
 * Open a device: the chosen one, or the browser's choice where that is absent. Throws CallError.
 *
 * @param {"microphone" | "camera"} device
 * @param {(choice: MediaTrackConstraints) => MediaStreamConstraints} ask
 * @param {string} deviceId empty for the browser's choice
 */
async function openDevice(device, ask, deviceId) {
  if (deviceId) {
    try {
      // A mere wish is not enough: Chromium may open its default device all the same.
      return await navigator.mediaDevices.getUserMedia(ask({ deviceId: { exact: deviceId } }));
    } catch (error) {
      if (FOUND.includes(nameOf(error))) throw mediaError(device, error);
    }
  }
  try {
    return await navigator.mediaDevices.getUserMedia(ask({}));
  } catch (error) {
    throw mediaError(device, error);
  }
}

/** Return whether this browser can share a screen: those of phones cannot. */
export function sharesScreens() {
  return Boolean(navigator.mediaDevices && "getDisplayMedia" in navigator.mediaDevices);
}

/** Have the user choose a screen or a window; a browser asks only after a click. Throws CallError. */
export async function openScreen() {
  if (!sharesScreens()) throw new CallError(t("screen_needs_https"));
  try {
    return await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 5 } }, audio: false });
  } catch (error) {
    throw mediaError("screen", error);
  }
}

/**
 * @param {"microphone" | "camera" | "screen"} device
 * @param {unknown} error of the browser
 */
function mediaError(device, error) {
  /** @type {Record<string, string>} */
  const reasons = {
    NotAllowedError: t(`${device}_blocked`),
    NotFoundError: t(`${device}_missing`),
    NotReadableError: t(`${device}_busy`),
  };
  const name = nameOf(error);
  return new CallError(reasons[name] ?? t(`${device}_failed`, { why: name }));
}

/**
 * Return true if the browser removes the bot's voice from the microphone. Where it does not report that, the request counts.
 *
 * @param {MediaStream | null} microphone
 * @param {{ raw: boolean }} options
 */
export function cancelsEcho(microphone, { raw }) {
  const [track] = microphone?.getAudioTracks() ?? [];
  // A boolean, or the name of the source that is cancelled.
  return Boolean(track?.getSettings().echoCancellation ?? !raw);
}

export class Call {
  /** @type {RTCPeerConnection | null} */
  #peer = null;
  /** @type {RTCDataChannel | null} */
  #channel = null;
  /** @type {RTCRtpSender | null} of the caller's sound */
  #sender = null;
  /** @type {MediaStreamTrack | null} what it sends */
  #sent = null;
  /** @type {Record<"camera" | "screen", RTCRtpSender | null>} */
  #pictures = { camera: null, screen: null };
  #path = "";
  #callId = "";
  /** @type {{ candidate: string, sdp_mid: string | null, sdp_mline_index: number | null }[]} not sent yet */
  #late = [];
  #messages = 0;
  #waited = { delay_s: 0, count: 0 }; // in the jitter buffer, at the last reading
  #ended = new AbortController();
  #queuedAt = -Infinity; // time of the server's last report on the caller's place in the queue
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #pinging;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watching;
  #requestMs = REQUEST_MS;
  /** @type {PromiseWithResolvers<void>} */
  #botReady = Promise.withResolvers?.() ?? deferred();

  /** @param {CallHandlers} on */
  constructor(on) {
    this.on = on;
    // Without a handler, a call that is closed early would report an unhandled rejection.
    this.#botReady.promise.catch(() => {});
  }

  /**
   * Open the call; resolve when the bot is ready. Throws CallError.
   *
   * @param {MediaStream | null} sound of the caller, who can only type without any
   * @param {string | null} session the conversation that continues; without one a new one begins
   * @param {CallOptions} options
   */
  async open(sound, session, options) {
    const { raw, mode, sees, desk, microphone = sound, chosen = {}, reconnects = false, held = false, requestMs = REQUEST_MS } = options;
    this.#requestMs = requestMs;
    const body = {
      ...(session && { session }),
      ...(desk && { desk }),
      ...(reconnects && { reconnect: true }),
      ...(held && { held }),
      ...chosen,
      mode,
      echo_cancellation: cancelsEcho(microphone, { raw }),
    };
    const start = { transport: "webrtc", body };
    /** @type {StartedCall} */
    const started = await this.#request("POST", "/start", start, authorization());
    keepNext(started);
    const { sessionId, iceConfig } = started;
    this.#path = `/sessions/${encodeURIComponent(sessionId)}/api/offer`;
    const peer = new RTCPeerConnection({ iceServers: iceConfig?.iceServers ?? [] });
    this.#peer = peer;
    peer.addEventListener("track", ({ track }) => track.kind === "audio" && this.on.sound(new MediaStream([track])));
    peer.addEventListener("connectionstatechange", () => this.#onConnectionState());
    peer.addEventListener("icecandidate", (event) => this.#onCandidate(event.candidate));
    // Send and receive even without a microphone: one can be added later without a new negotiation.
    this.#sent = sound?.getAudioTracks()[0] ?? null;
    this.#sender = peer.addTransceiver(this.#sent ?? "audio", { direction: "sendrecv" }).sender;
    // In this order: the server distinguishes them by their place.
    if (sees) {
      this.#pictures.camera = peer.addTransceiver("video", { direction: "sendrecv" }).sender;
      this.#pictures.screen = peer.addTransceiver("video", { direction: "sendrecv" }).sender;
    }
    this.#channel = peer.createDataChannel("rtvi", { ordered: true });
    this.#channel.addEventListener("open", () => this.#onChannelOpen());
    this.#channel.addEventListener("message", (event) => this.#onMessage(event.data));
    this.#channel.addEventListener("close", () => this.#end(null));

    await peer.setLocalDescription();
    await within(GATHER_MS, firstCandidate(peer)).catch(() => {});
    this.#ended.signal.throwIfAborted();
    const { sdp, type } = required(peer.localDescription, "the offer");
    /** @type {CallAnswer} */
    const answer = await this.#request("POST", this.#path, { sdp, type });
    await peer.setRemoteDescription({ sdp: answer.sdp, type: answer.type });
    this.#callId = answer.pc_id;
    this.#sendCandidates();
    await this.#untilReady().catch((error) => {
      throw error instanceof CallError || this.#ended.signal.aborted
        ? error
        : new CallError(t("no_connection"));
    });
  }

  /** Resolve when the bot is ready; the server reports every few seconds that a caller is still in the queue. */
  async #untilReady() {
    for (;;) {
      try {
        return await within(CONNECT_MS, this.#botReady.promise);
      } catch (error) {
        if (this.closed || performance.now() - this.#queuedAt > CONNECT_MS) throw error;
      }
    }
  }

  get closed() {
    return this.#ended.signal.aborted;
  }

  /**
   * Send another sound from now on; null for none. Before the connection is negotiated, open() has what is sent.
   *
   * @param {MediaStream | null} sound
   */
  async send(sound) {
    const [before, track] = [this.#sent, sound?.getAudioTracks()[0] ?? null];
    if (!this.#sender || track === before) return;
    this.#sent = track;
    await this.#sender.replaceTrack(track);
    // Until the channel is open, what it says first is decided when it opens.
    if (Boolean(track) !== Boolean(before) && this.#channel?.readyState === "open") this.#tellMicrophone(Boolean(track));
  }

  /**
   * Add a camera or a screen to the call, or remove it (null).
   *
   * @param {"camera" | "screen"} source
   * @param {MediaStream | null} stream
   */
  async useVideo(source, stream) {
    await this.#pictures[source]?.replaceTrack(stream?.getVideoTracks()[0] ?? null);
  }

  /**
   * Send typed text; the answer is spoken and shown.
   *
   * @param {string} content
   */
  type(content) {
    this.#send("send-text", { content, options: { run_immediately: true, audio_response: true } });
  }

  /**
   * Send a picture for the next turn, typed or spoken; return the id of the message, which an error names.
   *
   * @param {Attached} picture
   */
  show({ media_type: format, data: bytes, width, height }) {
    const file = { format, source: { type: "bytes", bytes, width, height } };
    return this.#send("send-file", { content: "", file, options: { run_immediately: false, audio_response: true } });
  }

  /**
   * Report something to the server that it may use and need not answer.
   *
   * @param {string} type
   * @param {object} data
   */
  report(type, data) {
    this.#send("client-message", { t: type, d: data });
  }

  /**
   * Read the way of the sound: the network there and back, and the mean wait in the browser's jitter buffer since the last reading.
   *
   * @returns {Promise<{ round_trip_ms: number, jitter_buffer_ms: number }>}
   */
  async transit() {
    const reports = [...(await this.#peer?.getStats() ?? new Map()).values()];
    const path = reports.find((each) => each.type === "candidate-pair" && each.nominated && each.state === "succeeded");
    const sound = reports.find((each) => each.type === "inbound-rtp" && each.kind === "audio");
    const waited = { delay_s: sound?.jitterBufferDelay ?? 0, count: sound?.jitterBufferEmittedCount ?? 0 };
    const count = waited.count - this.#waited.count;
    const delay_s = waited.delay_s - this.#waited.delay_s;
    this.#waited = waited;
    return {
      round_trip_ms: 1_000 * (path?.currentRoundTripTime ?? 0),
      jitter_buffer_ms: count > 0 ? (1_000 * delay_s) / count : 0,
    };
  }

  /** End the call without further events. Safe to call twice. */
  close() {
    if (this.closed) return;
    this.#ended.abort(new CallError(t("call_closed")));
    clearInterval(this.#pinging);
    clearInterval(this.#watching);
    this.#botReady.reject(this.#ended.signal.reason);
    this.#channel?.close();
    this.#peer?.close();
  }

  /** @param {CallError | null} error */
  #end(error) {
    if (this.closed) return;
    this.close();
    this.on.end(error);
  }

  #onConnectionState() {
    if (this.#peer?.connectionState === "failed") this.#end(lost());
  }

  /** End the call when the server's audio stops. */
  #watch() {
    let received = -1;
    let changedAt = performance.now();
    this.#watching = setInterval(async () => {
      const now = await packets(this.#peer);
      if (this.closed) return;
      if (now !== received) [received, changedAt] = [now, performance.now()];
      else if (now && performance.now() - changedAt > LOST_MS) this.#end(lost());
    }, LOOK_MS);
  }

  #onChannelOpen() {
    this.#send("client-ready", { version: "1.0.0", about: { library: "parley-web" } });
    if (!this.#sent) this.#tellMicrophone(false);
    this.#pinging = setInterval(() => {
      if (this.#channel?.readyState === "open") this.#channel.send("ping");
    }, PING_MS);
  }

  /** @param {string} text */
  #onMessage(text) {
    /** @type {ChannelMessage} */
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return; // not a message: those are JSON
    }
    if (message.type === "signalling") {
      if (message.message?.type === "peerLeft") this.#end(null);
      return;
    }
    if (message.type === "bot-ready") {
      this.#botReady.resolve();
      // A call in the queue gets no audio.
      if (!this.#watching) this.#watch();
    }
    if (message.type === "server-message" && message.data?.kind === "queue") {
      this.#queuedAt = performance.now();
    }
    this.on.message(message);
  }

  /** @param {RTCIceCandidate | null} candidate */
  #onCandidate(candidate) {
    if (!candidate?.candidate) return;
    this.#late.push({
      candidate: candidate.candidate,
      sdp_mid: candidate.sdpMid,
      sdp_mline_index: candidate.sdpMLineIndex,
    });
    if (this.#callId) this.#sendCandidates();
  }

  /** Send all candidates: those that the offer already holds are harmless, and sending is cheaper than finding out. */
  #sendCandidates() {
    const candidates = this.#late.splice(0);
    if (!candidates.length || this.closed) return;
    // A candidate that does not arrive costs one path of several; a dead call shows in the connection's state.
    this.#request("PATCH", this.#path, { pc_id: this.#callId, candidates }).catch(() => {});
  }

  /** @param {boolean} enabled */
  #tellMicrophone(enabled) {
    // Otherwise the server logs every two seconds that no sound arrives.
    required(this.#channel, "the connection").send(
      JSON.stringify({ type: "signalling", message: { type: "trackStatus", receiver_index: 0, enabled } }),
    );
  }

  /**
   * @param {string} type
   * @param {object} data
   */
  #send(type, data) {
    this.#messages += 1;
    const id = String(this.#messages);
    if (this.#channel?.readyState === "open") this.#channel.send(JSON.stringify({ label: "rtvi-ai", type, id, data }));
    return id;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object} body
   * @param {Record<string, string>} [headers]
   * @returns {Promise<any>}
   */
  async #request(method, path, body, headers = {}) {
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
        signal: AbortSignal.any([this.#ended.signal, AbortSignal.timeout(this.#requestMs)]),
      });
    } catch (error) {
      if (this.closed) throw this.#ended.signal.reason;
      throw new CallError(
        t(nameOf(error) === "TimeoutError" ? "server_silent" : "server_away"),
      );
    }
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    // A proxy may refuse in a form of its own.
    const reason = typeof answer.error === "string" ? answer.error : t("server_answered", { status: response.status });
    if (response.status === 401) {
      throw new CallError(t("may_not_begin", { login: "/admin" }), 401);
    }
    const refusal = response.status === 503 ? "server_busy" : "call_refused";
    throw new CallError(t(refusal, { why: reason }), response.status);
  }
}

function lost() {
  return new CallError(t("connection_lost"));
}

/**
 * Return how many packets of audio have come.
 *
 * @param {RTCPeerConnection | null} peer
 */
async function packets(peer) {
  const [receiver] = peer?.getReceivers().filter(({ track }) => track.kind === "audio") ?? [];
  let count = 0;
  for (const report of (await receiver?.getStats())?.values() ?? []) {
    if (report.type === "inbound-rtp") count += report.packetsReceived;
  }
  return count;
}

/**
 * Do what Promise.withResolvers does, for browsers that lack it.
 *
 * @returns {PromiseWithResolvers<void>}
 */
function deferred() {
  const parts = /** @type {PromiseWithResolvers<void>} */ ({});
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}

/**
 * Resolve when an offer has a candidate, or will have none.
 *
 * @param {RTCPeerConnection} peer
 * @returns {Promise<void>}
 */
function firstCandidate(peer) {
  return new Promise((resolve) => {
    peer.addEventListener("icecandidate", () => resolve(), { once: true });
    if (peer.iceGatheringState === "complete") resolve();
  });
}
