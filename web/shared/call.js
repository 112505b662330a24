// One call: microphone, peer connection, data channel. Decides the order in which they are opened and what a failure is
// called; what the messages mean is left to the page. A Call is used once. Every wait has a deadline; close() ends all of
// it, also in the middle of opening.

import { within } from "./deadline.js";
import { authorization, keepNext } from "./token.js";

const REQUEST_MS = 10_000;
const CONNECT_MS = 15_000;
// Candidates that take longer (a far STUN server) follow one by one.
const GATHER_MS = 1_000;
const PING_MS = 1_000;
// A peer connection often recovers from "disconnected" by itself, as when a phone changes networks. Browsers say it after some
// five seconds without an answer; the server has given the call up by then or soon will.
const LOST_MS = 3_000;

/** Why a call did not open or did not last, in words for the person. */
export class CallError extends Error {
  /** @param {number} status of the server's refusal; 0 when it was none */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Asks for the microphone. `raw` leaves the signal as it is (studio microphones, tests). Throws CallError. */
export async function openMicrophone({ raw }) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new CallError("The microphone needs https or localhost.");
  }
  const processed = !raw;
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: processed, noiseSuppression: processed, autoGainControl: processed },
    });
  } catch (error) {
    const reasons = {
      NotAllowedError: "The microphone is blocked for this page.",
      NotFoundError: "No microphone was found.",
      NotReadableError: "Another program is using the microphone.",
    };
    throw new CallError(reasons[error.name] ?? `The microphone could not be opened (${error.name}).`);
  }
}

/** Asks for the camera. Throws CallError. */
export async function openCamera() {
  if (!navigator.mediaDevices?.getUserMedia) throw new CallError("The camera needs https or localhost.");
  try {
    return await navigator.mediaDevices.getUserMedia({
      video: { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 5 } },
    });
  } catch (error) {
    const reasons = {
      NotAllowedError: "The camera is blocked for this page.",
      NotFoundError: "No camera was found.",
      NotReadableError: "Another program is using the camera.",
    };
    throw new CallError(reasons[error.name] ?? `The camera could not be opened (${error.name}).`);
  }
}

/** Whether the browser takes the bot's voice out of the microphone. What it does not say is what it was asked for. */
export function cancelsEcho(microphone, { raw }) {
  const [track] = microphone?.getAudioTracks() ?? [];
  // A boolean, or the name of what is cancelled.
  return Boolean(track?.getSettings().echoCancellation ?? !raw);
}

export class Call {
  #peer = null;
  #channel = null;
  #sender = null;
  #pictures = null;
  #path = "";
  #callId = "";
  #late = [];
  #messages = 0;
  #ended = new AbortController();
  #queuedAt = -Infinity; // when the server last said where the caller stands in the queue
  #pinging = 0;
  #lost = 0;
  #botReady = Promise.withResolvers?.() ?? deferred();

  /**
   * @param {object} on what the page wants to know
   * @param {(message: object) => void} on.message an RTVI message
   * @param {(stream: MediaStream) => void} on.sound the bot's voice
   * @param {(error: CallError | null) => void} on.end the other side ended the call (null) or it was lost
   */
  constructor(on) {
    this.on = on;
    // Nobody may be waiting when the call is closed.
    this.#botReady.promise.catch(() => {});
  }

  /**
   * Opens the call; resolves when the bot is ready. Throws CallError.
   *
   * @param {MediaStream | null} microphone without one can only type
   * @param {string | null} session the conversation that goes on; without one a new one begins
   * @param {object} options
   * @param {boolean} options.raw as for openMicrophone: what a microphone that comes later will be like
   * @param {string} options.mode "cascade" or "duplex"
   * @param {boolean} options.sees whether a camera may be put in
   */
  async open(microphone, session, { raw, mode, sees }) {
    const body = { ...(session && { session }), mode, echo_cancellation: cancelsEcho(microphone, { raw }) };
    const start = { transport: "webrtc", body };
    const started = await this.#request("POST", "/start", start, authorization());
    keepNext(started);
    const { sessionId, iceConfig } = started;
    this.#path = `/sessions/${encodeURIComponent(sessionId)}/api/offer`;
    const peer = new RTCPeerConnection({ iceServers: iceConfig?.iceServers ?? [] });
    this.#peer = peer;
    peer.addEventListener("track", ({ track }) => track.kind === "audio" && this.on.sound(new MediaStream([track])));
    peer.addEventListener("connectionstatechange", () => this.#onConnectionState());
    peer.addEventListener("icecandidate", (event) => this.#onCandidate(event.candidate));
    // Send and receive even without a microphone: one can be put in later without a new negotiation.
    const [track] = microphone?.getAudioTracks() ?? [];
    const transceiver = peer.addTransceiver(track ?? "audio", { direction: "sendrecv" });
    this.#sender = transceiver.sender;
    if (sees) this.#pictures = peer.addTransceiver("video", { direction: "sendrecv" }).sender;
    this.#channel = peer.createDataChannel("rtvi", { ordered: true });
    this.#channel.addEventListener("open", () => this.#onChannelOpen(Boolean(track)));
    this.#channel.addEventListener("message", (event) => this.#onMessage(event.data));
    this.#channel.addEventListener("close", () => this.#end(null));

    await peer.setLocalDescription();
    await within(GATHER_MS, gathered(peer)).catch(() => {});
    this.#ended.signal.throwIfAborted();
    const { sdp, type } = peer.localDescription;
    const answer = await this.#request("POST", this.#path, { sdp, type });
    await peer.setRemoteDescription({ sdp: answer.sdp, type: answer.type });
    this.#callId = answer.pc_id;
    this.#sendCandidates();
    await this.#untilReady().catch((error) => {
      throw error instanceof CallError || this.#ended.signal.aborted
        ? error
        : new CallError("The server answered, but no connection could be established. A firewall may be blocking it.");
    });
  }

  /** Resolves when the bot is ready; a caller in the queue is told every few seconds that they still wait. */
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

  /** Puts a microphone into a call that was opened without one. */
  async useMicrophone(microphone) {
    await this.#sender.replaceTrack(microphone.getAudioTracks()[0]);
    this.#tellMicrophone(true);
  }

  /** Puts a camera into the call, or takes it out (null). */
  async useCamera(camera) {
    await this.#pictures?.replaceTrack(camera?.getVideoTracks()[0] ?? null);
  }

  /** Sends typed text; the answer is spoken and shown. */
  type(content) {
    this.#send("send-text", { content, options: { run_immediately: true, audio_response: true } });
  }

  /** Ends the call without further events. Safe to call twice. */
  close() {
    if (this.closed) return;
    this.#ended.abort(new CallError("The call was closed."));
    clearInterval(this.#pinging);
    clearTimeout(this.#lost);
    this.#botReady.reject(this.#ended.signal.reason);
    this.#channel?.close();
    this.#peer?.close();
  }

  #end(error) {
    if (this.closed) return;
    this.close();
    this.on.end(error);
  }

  #onConnectionState() {
    clearTimeout(this.#lost);
    const state = this.#peer.connectionState;
    const lost = new CallError("The connection was lost.");
    if (state === "failed") this.#end(lost);
    if (state === "disconnected") this.#lost = setTimeout(() => this.#end(lost), LOST_MS);
  }

  #onChannelOpen(hasMicrophone) {
    this.#send("client-ready", { version: "1.0.0", about: { library: "parley-web" } });
    if (!hasMicrophone) this.#tellMicrophone(false);
    this.#pinging = setInterval(() => {
      if (this.#channel.readyState === "open") this.#channel.send("ping");
    }, PING_MS);
  }

  #onMessage(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return; // not for us: the channel carries JSON only
    }
    if (message.type === "signalling") {
      if (message.message?.type === "peerLeft") this.#end(null);
      return;
    }
    if (message.type === "bot-ready") this.#botReady.resolve();
    if (message.type === "server-message" && message.data?.kind === "queue") {
      this.#queuedAt = performance.now();
    }
    this.on.message(message);
  }

  #onCandidate(candidate) {
    if (!candidate?.candidate) return;
    this.#late.push({
      candidate: candidate.candidate,
      sdp_mid: candidate.sdpMid,
      sdp_mline_index: candidate.sdpMLineIndex,
    });
    if (this.#callId) this.#sendCandidates();
  }

  /** What the offer already held is harmless to send again, and cheaper than finding out. */
  #sendCandidates() {
    const candidates = this.#late.splice(0);
    if (!candidates.length || this.closed) return;
    // A candidate that does not arrive costs one path of several; a dead call shows in the connection's state.
    this.#request("PATCH", this.#path, { pc_id: this.#callId, candidates }).catch(() => {});
  }

  #tellMicrophone(enabled) {
    // The server would otherwise wonder every two seconds where the sound is.
    this.#channel.send(
      JSON.stringify({ type: "signalling", message: { type: "trackStatus", receiver_index: 0, enabled } }),
    );
  }

  #send(type, data) {
    if (this.#channel?.readyState !== "open") return;
    this.#messages += 1;
    this.#channel.send(JSON.stringify({ label: "rtvi-ai", type, id: String(this.#messages), data }));
  }

  async #request(method, path, body, headers = {}) {
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
        signal: AbortSignal.any([this.#ended.signal, AbortSignal.timeout(REQUEST_MS)]),
      });
    } catch (error) {
      if (this.closed) throw this.#ended.signal.reason;
      throw new CallError(
        error.name === "TimeoutError" ? "The server does not answer." : "The server cannot be reached.",
      );
    }
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    const reason = answer.error ?? answer.detail ?? `the server answered ${response.status}`;
    if (response.status === 401) {
      throw new CallError("This page may not begin a call, or its permission has expired. Open it again from the page that linked to it.", 401);
    }
    const refusal = response.status === 503 ? "The server is busy" : "The call was refused";
    throw new CallError(`${refusal}: ${reason}.`, response.status);
  }
}

function deferred() {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}

function gathered(peer) {
  return new Promise((resolve) => {
    const look = () => peer.iceGatheringState === "complete" && resolve();
    peer.addEventListener("icegatheringstatechange", look);
    look();
  });
}
