// Talk page: buttons, state and notices of one call at a time. Decides when a call begins and ends; the call itself is in call.js,
// the bubbles are in transcript.js, the conversation to which it belongs is in binding.js.

import { AfterCall } from "./after_call.js";
import { Binding } from "./binding.js";
import { Bubbles } from "./bubbles.js";
import { Call, CallError, openMicrophone, sharesScreens } from "./call.js";
import { CallPictures } from "./call_pictures.js";
import { part, showNotice, write } from "./element.js";
import { LatencyBeacon } from "./latency.js";
import { LatencyHistory } from "./latency_history.js";
import { chooseLanguage, t, translate } from "./language.js";
import { watchLevel } from "./level.js";
import { messageOf, nameOf, required } from "./guards.js";
import { Mode } from "./mode.js";
import { pauseMs } from "./reconnection.js";
import { Sight, stopTracks } from "./sight.js";
import { inCall, isOpening, next } from "./states.js";
import { Steps } from "./steps.js";
import { Transcript } from "./transcript.js";

/** @import { LineQueue, RtviMessage, ServerMessage, Status } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { Source } from "./sight.js" */
/** @import { State, StateEvent } from "./states.js" */

const STATUS_MS = 10_000;
// A call goes on after its connection was lost: for a server that starts anew, and not for ever.
const RECONNECT_MS = 60_000;
// A request that was made while the network was away is soon made again; a server that is slow gets more time.
const AGAIN_MS = 2_000;
const LONGEST_AGAIN_MS = 10_000;
// An answer that brings no sound leaves the page listening again.
const NO_SOUND_MS = 3_000;

// A call of hours keeps its last bubbles.
const KEEP_BUBBLES = 400;

/** @type {Record<"hungUp" | "ended" | "failed", Key>} */
const ENDINGS = { hungUp: "you_hung_up", ended: "parley_ended", failed: "call_broke_off" };

const parts = {
  state: part("state", HTMLElement),
  elapsed: part("elapsed", HTMLElement),
  hero: part("hero", HTMLElement),
  notice: part("notice", HTMLElement),
  talk: part("talk", HTMLButtonElement),
  talkLabel: part("talk-label", HTMLElement),
  microphone: part("microphone", HTMLButtonElement),
  microphoneCaption: part("microphone-caption", HTMLElement),
  camera: part("camera", HTMLButtonElement),
  cameraControl: part("camera-control", HTMLElement),
  cameraCaption: part("camera-caption", HTMLElement),
  screen: part("screen", HTMLButtonElement),
  screenControl: part("screen-control", HTMLElement),
  screenCaption: part("screen-caption", HTMLElement),
  preview: part("preview", HTMLVideoElement),
  level: part("level", HTMLElement),
  typing: part("typing", HTMLFormElement),
  typed: part("typed", HTMLInputElement),
  send: part("send", HTMLButtonElement),
  engines: part("engines", HTMLElement),
  floor: part("floor", HTMLElement),
  sound: part("remote-audio", HTMLAudioElement),
  byPhone: part("by-phone", HTMLButtonElement),
};
const raw = new URLSearchParams(location.search).get("raw") === "1";
const bubbles = new Bubbles(part("conversation", HTMLElement), { keep: KEEP_BUBBLES });
const transcript = new Transcript(bubbles);
const mode = new Mode();
const latency = new LatencyHistory(part("latency", HTMLDetailsElement));
const afterCall = new AfterCall(part("after-call", HTMLElement));

class TalkPage {
  /** @type {State} */
  #state = "ready";
  /** @type {Call | null} */
  #call = null;
  /** @type {MediaStream | null} */
  #microphone = null;
  #sight = new Sight(parts.preview, {
    changed: () => this.#show(),
    gone: (source) => this.#say(t(`${source}_gone`)),
  });
  #steps = new Steps({
    show: (source) => this.#showSource(source),
    hide: () => this.#showNothing(),
    leave: () => this.#goToText(),
    report: (answer) => this.#call?.report("tier", { answer }),
  });
  #asking = false;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {MediaStream | null} the bot's voice */
  #voice = null;
  /** @type {LatencyBeacon | null} */
  #beacon = null;
  /** @type {(() => void)[]} functions that end the watching of a level */
  #watches = [];
  #unwatchVoice = () => {};
  #isStopping = false; // the server has announced that it stops
  #startedAt = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #silent;
  #binding = new Binding(bubbles);
  #pictures = new CallPictures(bubbles, (problem) => {
    if (problem) this.#say(problem, { bad: true });
    this.#show();
  });
  #lost = ""; // reason for which the conversation is no longer in this call
  #refused = ""; // reason for which there is no line or no worker
  #telephone = ""; // number by which a conversation continues; empty without one

  constructor() {
    chooseLanguage(part("language", HTMLSelectElement), () => {
      this.#show();
      this.#steps.show();
      latency.show();
      afterCall.show();
    });
    parts.talk.addEventListener("click", () => (this.#call ? this.#hangUp() : this.#start({ speak: true })));
    parts.microphone.addEventListener("click", () => this.#toggleMicrophone());
    parts.camera.addEventListener("click", () => this.#toggleSource("camera"));
    parts.screen.addEventListener("click", () => this.#toggleSource("screen"));
    parts.typing.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    parts.typed.addEventListener("input", () => this.#show());
    parts.byPhone.addEventListener("click", () => this.#tellCode());
    // The server notices by itself that a page is gone; a goodbye frees the line at once.
    window.addEventListener("pagehide", () => this.#call && this.#hangUp());
    this.#show();
    this.#showEarlier();
  }

  /** Show the earlier turns of the conversation that the address names. */
  async #showEarlier() {
    const problem = await this.#binding.showEarlier();
    if (problem && !this.#call) this.#say(problem, { bad: true });
    this.#show();
  }

  /** @param {{ speak: boolean }} options */
  async #start({ speak }) {
    this.#go("start");
    this.#lost = this.#refused = "";
    this.#isStopping = false;
    this.#say("");
    afterCall.hide();
    bubbles.pin();
    const call = this.#newCall();
    this.#show();
    // Made while the click still counts as one: browsers block sound without a click.
    this.#context = new AudioContext();
    try {
      const microphone = speak ? await this.#openMicrophone(call) : null;
      if (call.closed) return;
      this.#microphone = microphone;
      this.#measure();
      await mode.known;
      await call.open(microphone, this.#binding.sessionId, { raw, mode: mode.chosen, sees: mode.sees });
      if (call.closed) return;
      this.#tellMedia(call);
      this.#startedAt = Date.now();
      this.#clock = setInterval(() => this.#showElapsed(), 1_000);
      this.#go("up");
      if (this.#hasTyped && !speak) this.#sendTyped();
    } catch (error) {
      const isMissing = error instanceof CallError && error.status === 404;
      const deleted = isMissing ? await this.#binding.dropDeleted() : "";
      if (call !== this.#call) return; // hung up in the meantime
      this.#fail(deleted ? new CallError(deleted) : error);
    }
  }

  #newCall() {
    this.#call = new Call({
      message: (message) => this.#onMessage(message),
      sound: (stream) => this.#play(stream),
      end: (error) => this.#onEnd(error),
    });
    return this.#call;
  }

  /** Go on with the call over a new connection, in the same conversation. */
  async #reconnect() {
    const lostAt = performance.now();
    this.#go("lost");
    const isRestart = this.#isStopping;
    this.#isStopping = false;
    clearTimeout(this.#silent);
    transcript.close();
    this.#pictures.close();
    this.#beacon?.close();
    this.#beacon = this.#voice = null;
    this.#say(t(isRestart ? "reconnecting_after_restart" : "reconnecting"));
    let requestMs = AGAIN_MS;
    for (;;) {
      const call = this.#newCall();
      const beganAt = performance.now();
      try {
        await this.#openAgain(call, requestMs);
        return;
      } catch (error) {
        call.close();
        if (call !== this.#call) return;
        const [tookMs, sinceMs] = [performance.now() - beganAt, performance.now() - lostAt];
        if (!mayPass(error) || sinceMs > RECONNECT_MS) {
          this.#fail(error);
          return;
        }
        if (tookMs >= requestMs) requestMs = Math.min(1.5 * requestMs, LONGEST_AGAIN_MS);
        const pause = pauseMs({ status: error.status, tookMs, sinceMs });
        await new Promise((resolve) => setTimeout(resolve, pause));
        if (this.#call !== call) return; // hung up in the meantime
      }
    }
  }

  /**
   * @param {Call} call
   * @param {number} requestMs
   */
  async #openAgain(call, requestMs) {
    const asked = { raw, mode: mode.chosen, sees: mode.sees, reconnects: true, requestMs };
    await call.open(this.#microphone, this.#binding.sessionId, asked);
    await this.#sight.moveTo(call);
    this.#tellMedia(call);
    transcript.note(t("reconnected"));
    this.#say("");
    this.#go("up");
  }

  /**
   * @param {Call} call
   * @returns {Promise<MediaStream | null>}
   */
  async #openMicrophone(call) {
    try {
      const stream = await openMicrophone({ raw });
      if (call.closed) stopTracks(stream);
      else this.#watchMicrophone(stream);
      return call.closed ? null : stream;
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#say(`${error.message} ${t("type_instead")}`);
      return null;
    }
  }

  /** @param {MediaStream} stream */
  #watchMicrophone(stream) {
    const bars = [...parts.level.querySelectorAll("i")];
    this.#watches.push(
      watchLevel(required(this.#context, "the audio context"), stream, (level) => {
        parts.level.setAttribute("aria-valuenow", String(Math.round(level * 100)));
        bars.forEach((bar, at) => bar.style.setProperty("--level", clamp(level * bars.length - at)));
      }),
    );
    stream.getAudioTracks()[0].addEventListener("ended", () => {
      if (stream !== this.#microphone) return;
      this.#microphone = null;
      this.#say(`${t("microphone_gone")} ${t("type_instead")}`);
      this.#show();
    });
  }

  /** Measure the latency of the answers, once there is a microphone and a voice. */
  #measure() {
    const call = this.#call;
    if (this.#beacon || !call || !this.#microphone || !this.#voice || !this.#context) return;
    this.#beacon = new LatencyBeacon(this.#context, () => call.transit(), (heard) => {
      call.report("latency", heard);
      transcript.hear(heard);
    });
    // Without it the call is whole.
    this.#beacon.start(this.#microphone, this.#voice).catch((error) => console.info(`no latency is measured: ${messageOf(error)}`));
  }

  /** @param {MediaStream} stream the bot's voice */
  #play(stream) {
    this.#voice = stream;
    this.#measure();
    parts.sound.srcObject = stream;
    parts.sound.play().catch((error) => {
      if (nameOf(error) !== "NotAllowedError") return; // replaced or closed in the meantime
      this.#say(t("audio_blocked"));
      const release = () => {
        parts.sound.play().then(() => this.#say(""), () => {});
      };
      document.addEventListener("pointerdown", release, { once: true });
    });
    this.#unwatchVoice();
    this.#unwatchVoice =
      watchLevel(required(this.#context, "the audio context"), stream, (level) => {
        parts.talk.style.setProperty("--voice", level.toFixed(2));
      });
  }

  /**
   * Offer to continue by telephone.
   *
   * @param {string} number of the server
   */
  offerTelephone(number) {
    this.#telephone = number;
    this.#show();
  }

  /** Show what the server can do, once that is known. */
  refresh() {
    this.#show();
  }

  async #tellCode() {
    try {
      this.#say(await this.#binding.byPhone());
    } catch (error) {
      this.#say(t("no_code", { why: messageOf(error) }), { bad: true });
    }
  }

  async #toggleMicrophone() {
    const call = this.#call;
    if (this.#microphone) {
      const [track] = this.#microphone.getAudioTracks();
      track.enabled = !track.enabled;
    } else if (call && !this.#asking) {
      // The browser may be asking for permission: a second click must not open a second microphone.
      this.#asking = true;
      try {
        await this.#addMicrophone(call);
      } finally {
        this.#asking = false;
      }
    }
    this.#show();
  }

  /** @param {Source} source */
  async #toggleSource(source) {
    const call = this.#call;
    if (!call) return;
    try {
      await this.#sight.toggle(source, call);
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#say(error.message, { bad: true });
    }
  }

  /**
   * Show a source for a step; return whether it is shown.
   *
   * @param {Source} source
   */
  async #showSource(source) {
    if (this.#call && !this.#sight.shows(source)) await this.#toggleSource(source);
    return this.#sight.shows(source);
  }

  #showNothing() {
    this.#sight.drop("camera", this.#call);
    this.#sight.drop("screen", this.#call);
  }

  /** Go on in writing, in the same conversation. */
  #goToText() {
    const session = this.#binding.sessionId;
    this.#hangUp();
    if (session) location.assign(`/s/${session}`);
  }

  /**
   * Report to which media this page can change.
   *
   * @param {Call} call
   */
  #tellMedia(call) {
    const screen = sharesScreens() ? ["screen"] : [];
    call.report("tier", { can: ["text", ...(mode.sees ? ["video", ...screen] : [])] });
  }

  /** @param {Call} call */
  async #addMicrophone(call) {
    const microphone = await this.#openMicrophone(call);
    if (!microphone) return;
    try {
      await call.useMicrophone(microphone);
    } catch (error) {
      stopTracks(microphone);
      this.#say(t("microphone_unusable", { why: messageOf(error) }), { bad: true });
      return;
    }
    if (call.closed) {
      stopTracks(microphone);
      return;
    }
    this.#microphone = microphone;
    this.#measure();
    this.#say("");
  }

  get #hasTyped() {
    return Boolean(parts.typed.value.trim()) || !this.#pictures.empty;
  }

  #submit() {
    if (!this.#hasTyped || isOpening(this.#state)) return;
    if (this.#call) this.#sendTyped();
    // The text stays in the box until there is a call to send it in: a refused call loses nothing.
    else this.#start({ speak: false });
  }

  #sendTyped() {
    const text = parts.typed.value.trim();
    if (this.#call) this.#pictures.send(this.#call, { withText: Boolean(text) });
    if (text) this.#call?.type(text);
    parts.typed.value = "";
    this.#say("");
    this.#show();
  }

  /** @param {RtviMessage} message */
  #onMessage(message) {
    transcript.take(message);
    latency.take(message);
    this.#pictures.take(message);
    switch (message.type) {
      case "user-started-speaking":
        this.#go("userStarted");
        break;
      case "bot-llm-started":
        this.#go("thinking");
        break;
      case "bot-llm-stopped":
        clearTimeout(this.#silent);
        this.#silent = setTimeout(() => this.#go("quiet"), NO_SOUND_MS);
        break;
      case "bot-started-speaking":
        clearTimeout(this.#silent);
        this.#go("botStarted");
        break;
      case "bot-stopped-speaking":
        this.#go("botStopped");
        this.#steps.quiet();
        break;
      case "server-message":
        if (message.data) this.#onServerMessage(message.data);
        break;
      case "error":
        this.#say(t("server_reports", { why: shortened(message.data?.error ?? t("an_error")) }), { bad: true });
        break;
      case "error-response":
        this.#say(t("server_refused", { why: shortened(message.data?.error ?? "") }), { bad: true });
        break;
      default:
    }
  }

  /** @param {ServerMessage} data */
  #onServerMessage(data) {
    switch (data.kind) {
      case "session":
        this.#binding.bind(data.id);
        this.#show();
        break;
      case "session_lost":
        this.#onLost();
        break;
      case "server_shutdown":
        this.#isStopping = true;
        this.#say(t("server_restarts"));
        break;
      case "ended_by_operator":
      case "tenant_limit":
      case "grants_expired":
        this.#say(t("server_ends_call", { why: shortened(data.reason ?? "") }), { bad: true });
        break;
      case "queue":
        this.#onQueue(data);
        break;
      case "tier":
        this.#steps.take(data);
        break;
      case "votes":
        mode.take(data);
        break;
      default:
    }
  }

  /** @param {LineQueue} place */
  #onQueue({ position, wait_s: waitS, refused }) {
    this.#refused = refused ? `${t("server_reports", { why: refused })}.` : "";
    if (refused) this.#say(this.#refused, { bad: true });
    else if (!position) this.#say("");
    else {
      const wait = typeof waitS === "number" ? t("queue_wait", { time: duration(waitS * 1000) }) : "";
      this.#say(t("queue", { position, wait }));
    }
  }

  async #onLost() {
    const call = this.#call;
    const why = await this.#binding.whyLost();
    if (this.#call && this.#call !== call) return;
    this.#lost = why;
    this.#say(why, { bad: true });
  }

  #hangUp() {
    this.#call?.close();
    this.#settle("hungUp");
  }

  /** @param {CallError | null} error */
  #onEnd(error) {
    const goesOn = inCall(this.#state) && this.#binding.sessionId && !this.#lost && (error || this.#isStopping);
    if (this.#state === "reconnecting") return; // an attempt, which ends by its own error
    if (goesOn) this.#reconnect();
    else if (error) this.#fail(error);
    else if (this.#state === "connecting") this.#fail(new CallError(t("ended_early")));
    else this.#settle("ended");
  }

  /** @param {unknown} error */
  #fail(error) {
    this.#call?.close();
    this.#settle("failed");
    const why = error instanceof CallError ? error.message : t("call_failed", { why: messageOf(error) });
    this.#say(this.#lost || this.#refused || why, { bad: true });
    if (!(error instanceof CallError)) console.error(error);
  }

  /**
   * Release everything that belongs to the call.
   *
   * @param {"hungUp" | "ended" | "failed"} event
   */
  #settle(event) {
    transcript.close();
    this.#pictures.close();
    if (this.#startedAt) {
      const lengthMs = Date.now() - this.#startedAt;
      transcript.note(t(ENDINGS[event], { time: duration(lengthMs) }));
      if (!this.#lost) afterCall.begin(this.#binding.sessionId, lengthMs);
    }
    this.#say(this.#lost || this.#refused, { bad: true });
    for (const stop of this.#watches.splice(0)) stop();
    this.#unwatchVoice();
    this.#unwatchVoice = () => {};
    this.#beacon?.close();
    this.#beacon = this.#voice = null;
    stopTracks(this.#microphone);
    this.#microphone = null;
    this.#sight.close();
    this.#steps.close();
    this.#context?.close();
    this.#context = null;
    parts.sound.srcObject = null;
    clearInterval(this.#clock);
    clearTimeout(this.#silent);
    this.#startedAt = 0;
    parts.elapsed.textContent = "";
    this.#call = null;
    this.#go(event);
  }

  /** @param {StateEvent} event */
  #go(event) {
    this.#state = next(this.#state, event);
    this.#show();
  }

  #show() {
    const state = this.#state;
    const busy = this.#call !== null;
    const deaf = this.#microphone === null;
    const muted = this.#microphone !== null && !this.#microphone.getAudioTracks()[0].enabled;
    document.body.dataset.state = state;
    document.body.dataset.microphone = deaf ? "none" : muted ? "muted" : "on";
    const label = state !== "listening" ? state : deaf ? "deaf" : muted ? "muted" : state;
    write(parts.state, t(`state_${label}`));
    write(parts.talkLabel, t(busy ? "hang_up" : "talk"));
    // The pressed state says that it is muted: a name that changes too would say the opposite.
    const [name, caption] = deaf && inCall(state)
      ? /** @type {const} */ (["turn_on_microphone", "state_deaf"])
      : /** @type {const} */ (["mute_microphone", muted ? "unmute" : "mute"]);
    parts.microphone.setAttribute("aria-label", t(name));
    parts.microphone.setAttribute("aria-pressed", String(muted));
    parts.microphone.disabled = !inCall(state);
    parts.microphoneCaption.textContent = t(caption);
    parts.hero.hidden = busy || !bubbles.empty;
    mode.lock(busy);
    this.#pictures.offer(mode.reads);
    parts.cameraControl.hidden = !busy || !mode.sees;
    parts.camera.disabled = !inCall(state);
    parts.camera.setAttribute("aria-pressed", String(this.#sight.shows("camera")));
    parts.cameraCaption.textContent = t(this.#sight.shows("camera") ? "hide" : "camera");
    parts.preview.hidden = !this.#sight.shows("camera");
    parts.screenControl.hidden = parts.cameraControl.hidden || !sharesScreens();
    parts.screen.disabled = !inCall(state);
    parts.screen.setAttribute("aria-pressed", String(this.#sight.shows("screen")));
    parts.screenCaption.textContent = t(this.#sight.shows("screen") ? "stop_sharing" : "screen");
    this.#binding.showLinks({ busy });
    parts.byPhone.hidden = !this.#telephone || !this.#binding.sessionId;
    parts.typed.readOnly = state === "connecting";
    parts.send.disabled = isOpening(state) || !this.#hasTyped;
  }

  #showElapsed() {
    parts.elapsed.textContent = duration(Date.now() - this.#startedAt);
  }

  /**
   * Show one line to the user; an empty text removes it.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #say(text, { bad = false } = {}) {
    showNotice(parts.notice, text, { bad });
  }
}

/**
 * Name the engines, and say what to expect of the recogniser.
 *
 * @param {TalkPage} page
 */
async function showEngines(page) {
  /** @type {Status | null} */
  let status;
  try {
    const response = await fetch("/status", { signal: AbortSignal.timeout(STATUS_MS) });
    status = response.ok ? await response.json() : null;
  } catch {
    status = null; // a call will report the reason
  }
  if (!status) {
    mode.offer();
    return;
  }
  mode.offer(status);
  page.refresh();
  if (status.telephone) page.offerTelephone(status.telephone);
  const { deployment, stt, turn, llm, fallback, tts, omni } = status;
  const answers = llm && fallback ? t("else", { first: llm, second: fallback }) : llm;
  const named = [
    [t("engine_recogniser"), stt],
    [t("engine_turns"), turn],
    [t("engine_answers"), answers],
    [t("engine_voice"), tts],
    [t("engine_duplex"), omni],
    [t("engine_deployment"), deployment],
  ];
  for (const [stage, engine] of named) {
    if (!engine) continue;
    const item = document.createElement("span");
    const name = document.createElement("b");
    name.textContent = engine;
    item.append(`${stage} `, name);
    parts.engines.append(item, " ");
  }
  if (stt === "pocketsphinx") {
    parts.floor.textContent = t("simple_english");
    parts.floor.hidden = false;
  }
}

/**
 * Return true for a failure to open a call that a later attempt may not have.
 *
 * @param {unknown} error
 * @returns {error is CallError}
 */
function mayPass(error) {
  if (!(error instanceof CallError)) return false;
  return !error.status || error.status === 409 || error.status === 429 || error.status >= 500;
}

/** @param {number} value */
function clamp(value) {
  return Math.min(1, Math.max(0, value)).toFixed(2);
}

/**
 * Return the text of whatever the server reports, at a bounded length.
 *
 * @param {unknown} text
 */
function shortened(text) {
  return String(text).slice(0, 200);
}

/** @param {number} ms */
function duration(ms) {
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

translate(document);
showEngines(new TalkPage());
