// Talk page: buttons, state and notices of one call at a time. Decides when a call begins and ends; the call itself is in call.js,
// its sound in call_sound.js, the bubbles in transcript.js, the conversation to which it belongs in binding.js.

import { AfterCall } from "./after_call.js";
import { Binding } from "./binding.js";
import { Bubbles } from "./bubbles.js";
import { Call, CallError, sharesScreens } from "./call.js";
import { CallPictures } from "./call_pictures.js";
import { CallSound } from "./call_sound.js";
import { chime } from "./chime.js";
import { Choices } from "./choices.js";
import { Devices } from "./devices.js";
import { part, write } from "./element.js";
import { EngineNames } from "./engine_names.js";
import { LatencyHistory } from "./latency_history.js";
import { chooseLanguage, t, translate } from "./language.js";
import { messageOf } from "./guards.js";
import { Hold } from "./hold.js";
import { MicrophoneButton } from "./microphone_button.js";
import { Mode } from "./mode.js";
import { PageNotice } from "./page_notice.js";
import { PushToTalk } from "./push_to_talk.js";
import { pauseMs } from "./reconnection.js";
import { listenForKeys, press } from "./shortcuts.js";
import { Sight } from "./sight.js";
import { SoundPanel } from "./sound_panel.js";
import { SoundSettings } from "./sound_settings.js";
import { inCall, isOpening, next, wordOf } from "./states.js";
import { Steps } from "./steps.js";
import { Transcript } from "./transcript.js";
import { ElementVoice } from "./voice_output.js";

/** @import { CallOptions } from "./call.js" */
/** @import { LineQueue, RtviMessage, ServerMessage, Status } from "../types/server.js" */
/** @import { Device } from "./devices.js" */
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
  talk: part("talk", HTMLButtonElement),
  talkLabel: part("talk-label", HTMLElement),
  microphone: part("microphone", HTMLButtonElement),
  camera: part("camera", HTMLButtonElement),
  cameraControl: part("camera-control", HTMLElement),
  cameraCaption: part("camera-caption", HTMLElement),
  screen: part("screen", HTMLButtonElement),
  screenControl: part("screen-control", HTMLElement),
  screenCaption: part("screen-caption", HTMLElement),
  preview: part("preview", HTMLVideoElement),
  typing: part("typing", HTMLFormElement),
  typed: part("typed", HTMLInputElement),
  send: part("send", HTMLButtonElement),
  byPhone: part("by-phone", HTMLButtonElement),
  modes: part("modes", HTMLFieldSetElement),
};
const raw = new URLSearchParams(location.search).get("raw") === "1";
const bubbles = new Bubbles(part("conversation", HTMLElement), { keep: KEEP_BUBBLES });
const transcript = new Transcript(bubbles);
const notice = new PageNotice(part("notice", HTMLElement));
const mode = new Mode();
const choices = new Choices(mode);
const engines = new EngineNames(part("engines", HTMLElement), part("floor", HTMLElement));
const latency = new LatencyHistory(part("latency", HTMLDetailsElement));
const afterCall = new AfterCall(part("after-call", HTMLElement));

class TalkPage {
  /** @type {State} */
  #state = "ready";
  /** @type {Call | null} */
  #call = null;
  #settings = new SoundSettings();
  #devices = new Devices(() => this.#onDevices());
  #push = new PushToTalk(parts.microphone, {
    isOn: this.#settings.values.pushToTalk,
    isReady: () => inCall(this.#state) && this.#sound.microphone !== null,
    changed: () => this.#sound.followButton(),
  });
  #sound = new CallSound(
    {
      ...{ raw, devices: this.#devices, settings: this.#settings, push: this.#push },
      output: new ElementVoice(part("remote-audio", HTMLAudioElement), (isBlocked) => {
        this.#say(isBlocked ? t("audio_blocked") : "");
      }),
    },
    {
      changed: () => this.#show(),
      say: (text, options) => this.#sayOfDevices(text, options),
      heard: (heard) => {
        this.#call?.report("latency", heard);
        transcript.hear(heard);
      },
    },
  );
  #button = new MicrophoneButton(parts.microphone);
  #panel = new SoundPanel(
    { sound: this.#sound, devices: this.#devices, settings: this.#settings },
    { chosen: (device) => this.#onChosen(device) },
  );
  #sight = new Sight(parts.preview, {
    changed: () => this.#show(),
    opened: (source, track) => this.#onOpened(source, track),
    gone: (source) => this.#say(t(`${source}_gone`)),
    camera: () => this.#devices.chosen("camera").id,
  });
  #steps = new Steps({
    show: (source) => this.#showSource(source),
    hide: () => this.#showNothing(),
    leave: () => this.#goToText(),
    report: (answer) => this.#call?.report("tier", { answer }),
  });
  #hold = new Hold((isOn) => this.#call?.report("hold", { is_on: isOn }), () => {
    this.#sound.holdFile(this.#hold.isOn);
    this.#show();
  });
  #isWaiting = false; // in the queue for a line
  #isStopping = false; // the server has announced that it stops
  #botSpeaks = false; // maybe before the call is up: it waits for the sound of the call, and not for the first messages
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
      this.#panel.showDevices();
      this.#show();
      this.#steps.show();
      latency.show();
      afterCall.show();
      engines.draw();
    });
    parts.talk.addEventListener("click", () => (this.#call ? this.#hangUp() : this.#start({ speak: true })));
    parts.microphone.addEventListener("click", () => this.#clickMicrophone());
    parts.camera.addEventListener("click", () => this.#toggleSource("camera"));
    parts.screen.addEventListener("click", () => this.#toggleSource("screen"));
    parts.typing.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    parts.typed.addEventListener("input", () => this.#show());
    parts.byPhone.addEventListener("click", () => this.#tellCode());
    // What the bot can be shown depends on the mode.
    parts.modes.addEventListener("change", () => this.#show());
    listenForKeys(
      { mute: () => press(parts.microphone), camera: () => press(parts.camera), help: () => this.#panel.openShortcuts() },
      () => this.#settings.values.shortcuts,
    );
    this.#devices.refresh();
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
    this.#sound.begin();
    this.#sound.use(call);
    try {
      if (speak) await this.#sound.addMicrophone();
      if (call.closed) return;
      await mode.known;
      const chosen = await choices.take();
      await this.#open(call, { chosen });
      if (call.closed) return;
      this.#tellMedia(call);
      this.#startedAt = Date.now();
      this.#clock = setInterval(() => this.#showElapsed(), 1_000);
      this.#go(this.#botSpeaks ? "upSpeaking" : "up");
      if (this.#hasTyped && !speak) this.#sendTyped();
    } catch (error) {
      const isMissing = error instanceof CallError && error.status === 404;
      const deleted = isMissing ? await this.#binding.dropDeleted() : "";
      if (call !== this.#call) return; // hung up in the meantime
      this.#fail(deleted ? new CallError(deleted) : error);
    }
  }

  #newCall() {
    this.#botSpeaks = false;
    this.#call = new Call({
      message: (message) => this.#onMessage(message),
      sound: (stream) => this.#sound.play(stream),
      end: (error) => this.#onEnd(error),
    });
    return this.#call;
  }

  /**
   * @param {Call} call
   * @param {Partial<CallOptions>} more choices, and what holds for a call that goes on
   */
  async #open(call, more) {
    const { stream, microphone } = this.#sound;
    await call.open(stream, this.#binding.sessionId, { raw, mode: mode.chosen, sees: mode.sees, microphone, ...more });
    this.#sound.send();
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
    this.#say(t(isRestart ? "reconnecting_after_restart" : "reconnecting"));
    let requestMs = AGAIN_MS;
    for (;;) {
      const call = this.#newCall();
      this.#sound.use(call);
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
    await this.#open(call, { chosen: choices.taken, reconnects: true, held: this.#hold.isOn, requestMs });
    await this.#sight.moveTo(call);
    this.#tellMedia(call);
    transcript.note(() => t("reconnected"));
    this.#say("");
    this.#go(this.#botSpeaks ? "upSpeaking" : "up");
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

  #clickMicrophone() {
    // Held, and not clicked, in that mode.
    if (this.#call && !(this.#push.on && this.#sound.microphone)) this.#sound.toggleMicrophone();
  }

  #onDevices() {
    this.#sound.followDevices();
    this.#panel.showDevices();
  }

  /**
   * @param {Source} source
   * @param {MediaStreamTrack} track
   */
  #onOpened(source, track) {
    if (source !== "camera") return;
    const other = this.#devices.otherThanChosen(source, track);
    if (other) this.#sayOfDevices(other);
    this.#devices.refresh();
  }

  /** @param {Device} device */
  async #onChosen(device) {
    const call = this.#call;
    if (device === "microphone") await this.#sound.changeMicrophone();
    else if (device === "loudspeaker") this.#sound.changeLoudspeaker();
    else if (call) await this.#reported(() => this.#sight.changeCamera(call));
  }

  /** @param {Source} source */
  async #toggleSource(source) {
    const call = this.#call;
    if (call) await this.#reported(() => this.#sight.toggle(source, call));
  }

  /**
   * Do something with a camera or a screen, and report why that is not possible.
   *
   * @param {() => Promise<void>} act
   */
  async #reported(act) {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#sayOfDevices(error.message, { bad: true });
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
        this.#botSpeaks = true;
        clearTimeout(this.#silent);
        this.#go("botStarted");
        break;
      case "bot-stopped-speaking":
        this.#botSpeaks = false;
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
      case "hold":
        this.#hold.take(data);
        break;
      case "votes":
        mode.take(data);
        break;
      default:
    }
  }

  /** @param {LineQueue} place */
  #onQueue({ position, wait_s: waitS, refused }) {
    const { context } = this.#sound;
    if (this.#isWaiting && !position && !refused && context && this.#settings.values.chime) chime(context);
    this.#isWaiting = Boolean(position);
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
      transcript.note(() => t(ENDINGS[event], { time: duration(lengthMs) }));
      if (!this.#lost) afterCall.begin(this.#binding.sessionId, lengthMs);
    }
    this.#say(this.#lost || this.#refused, { bad: true });
    this.#sound.close();
    this.#push.release();
    this.#isWaiting = false;
    this.#sight.close();
    this.#steps.close();
    this.#hold.close();
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
    document.body.dataset.state = state;
    this.#showMicrophone();
    write(parts.talkLabel, t(busy ? "hang_up" : "talk"));
    parts.hero.hidden = busy || !bubbles.empty;
    mode.lock(busy);
    choices.lock(busy);
    this.#hold.show({ isUp: inCall(state) });
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
    this.#panel.show({ inCall: inCall(state), sees: mode.sees });
  }

  /** Show whether the bot hears the caller, and what the microphone's button does. */
  #showMicrophone() {
    const state = this.#state;
    const { on: pushes, held: isHeld } = this.#push;
    const { isMuted, microphone, place_s: place } = this.#sound;
    const deaf = microphone === null;
    const heard = wordOf(state, { deaf, isMuted, pushes, isHeld, playsFile: place !== null });
    write(parts.state, t(`state_${this.#hold.isOn && inCall(state) ? "held" : heard}`));
    this.#button.show({ isUp: inCall(state), deaf, isMuted, pushes, isHeld });
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
  #say(text, options) {
    notice.say(text, options);
  }

  /**
   * Show one line on a device, which the panel may cover; an empty text removes it.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #sayOfDevices(text, options) {
    notice.sayOfDevice(text, options);
    this.#panel.say(text, options);
  }
}

/**
 * Read what the server can do, and show it.
 *
 * @param {TalkPage} page
 */
async function readStatus(page) {
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
  engines.show(status);
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
readStatus(new TalkPage());
