// Page of full duplex over a WebSocket: begins and ends conversations, and shows their state. What is heard is decided in
// omni_conversation.js, what is seen in stage.js.

import { DeviceChoice } from "./camera_choice.js";
import { clockOf } from "./clock_text.js";
import { part, showNotice, write } from "./element.js";
import { FileError, FileSource } from "./file_source.js";
import { messageOf } from "./guards.js";
import { chooseLanguage, t, translate } from "./language.js";
import { Conversation } from "./omni_conversation.js";
import { OwnConversation } from "./own_conversation.js";
import { Presets } from "./presets.js";
import { endWords, errorWords, whyRefused } from "./refusals.js";
import { SpokenView } from "./spoken_view.js";
import { Stage } from "./stage.js";
import { UnitChart } from "./unit_chart.js";

/** @import { DuplexResult, EngineQueue } from "../types/server.js" */
/** @import { EndReason } from "./duplex_socket.js" */
/** @import { ConversationHandlers } from "./omni_conversation.js" */

/** @typedef {"ready" | "connecting" | "waiting" | "listening" | "speaking" | "paused" | "over"} State */

// As often as a syllable.
const SHOW_MS = 100;
const BEGUN = new Set(["connecting", "waiting", "listening", "speaking", "paused"]);
const IN_CONVERSATION = new Set(["listening", "speaking", "paused"]);

const parts = {
  talk: part("talk", HTMLButtonElement),
  talkLabel: part("talk-label", HTMLElement),
  pause: part("pause", HTMLButtonElement),
  pauseCaption: part("pause-caption", HTMLElement),
  listen: part("listen", HTMLButtonElement),
  camera: part("camera", HTMLButtonElement),
  cameraCaption: part("camera-caption", HTMLElement),
  file: part("file", HTMLInputElement),
  fileBar: part("file-bar", HTMLElement),
  fileName: part("file-name", HTMLElement),
  fileProgress: part("file-progress", HTMLProgressElement),
  fileTime: part("file-time", HTMLElement),
  fileStop: part("file-stop", HTMLButtonElement),
  prompt: part("prompt", HTMLTextAreaElement),
  latency: part("latency", HTMLElement),
  cost: part("cost", HTMLElement),
  ahead: part("ahead", HTMLElement),
  context: part("context", HTMLElement),
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
};

class OmniPage {
  /** @type {Conversation | null} */
  #conversation = null;
  /** @type {State} */
  #state = "ready";
  /** @type {{ say: () => string, bad: boolean, passes: boolean }} in the language of the page; `passes`: the bot's next words end it */
  #notice = { say: () => "", bad: false, passes: false };
  /** @type {FileSource | null} chosen, or played */
  #file = null;
  #session = "";
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #showing;
  #microphones = new DeviceChoice(
    "audioinput", part("microphone", HTMLSelectElement), part("microphone-box", HTMLElement),
    (device) => this.#try(() => this.#conversation?.useMicrophone(device)),
  );
  #cameras = new DeviceChoice(
    "videoinput", part("camera-choice", HTMLSelectElement), part("camera-box", HTMLElement),
    (device) => this.#stage.isOn && this.#stage.open({ device }),
  );
  #stage = new Stage(this.#cameras, {
    changed: (shows) => {
      this.#presets.useCamera(shows);
      this.#show();
    },
    failed: (error) => this.#fail(() => messageOf(error)),
    gone: () => this.#fail(() => t("camera_gone")),
  });
  #presets = new Presets(parts.prompt, (text) => this.#note(() => text, { bad: Boolean(text) }));
  #spoken = new SpokenView(part("said", HTMLElement), part("subtitles", HTMLElement), part("subtitles-switch", HTMLButtonElement));
  #chart = new UnitChart(part("units", HTMLCanvasElement));
  #kept = new OwnConversation();

  constructor() {
    chooseLanguage(part("language", HTMLSelectElement), () => {
      this.#stage.show();
      this.#presets.show();
      this.#show();
    });
    parts.talk.addEventListener("click", () => (this.#conversation ? this.#conversation.close() : this.#start()));
    parts.pause.addEventListener("click", () => this.#conversation?.pause());
    parts.camera.addEventListener("click", () => (this.#stage.isOn ? this.#stage.close() : this.#stage.open()));
    parts.file.addEventListener("change", () => this.#chooseFile());
    parts.fileStop.addEventListener("click", () => this.#stopFile());
    parts.listen.addEventListener("pointerdown", () => this.#force(true));
    for (const name of ["pointerup", "pointerleave", "blur"]) parts.listen.addEventListener(name, () => this.#force(false));
    parts.listen.addEventListener("keydown", ({ key }) => [" ", "Enter"].includes(key) && this.#force(true));
    parts.listen.addEventListener("keyup", ({ key }) => [" ", "Enter"].includes(key) && this.#force(false));
    addEventListener("pagehide", () => this.#conversation?.close());
    this.#presets.load();
    this.#show();
  }

  async #start() {
    const sees = this.#stage.isOn || Boolean(this.#file?.isFilm);
    const app = sees ? "omni" : "audio_duplex";
    const raw = new URLSearchParams(location.search).has("raw");
    /** @type {Conversation} */
    const mine = new Conversation(this.#handlers(() => mine === this.#conversation, app), { raw });
    this.#conversation = mine;
    this.#session = "";
    this.#kept.hide();
    this.#note(() => "");
    this.#to("connecting");
    const beginning = { prompt: parts.prompt.value.trim(), voice: this.#presets.voice, sees, file: this.#file };
    try {
      await mine.open(beginning, this.#microphones.device);
    } catch (error) {
      if (mine !== this.#conversation) return; // the user hung up
      mine.close();
      this.#fail(() => messageOf(error));
    }
  }

  /**
   * @param {() => boolean} isCurrent
   * @param {"omni" | "audio_duplex"} app
   * @returns {ConversationHandlers}
   */
  #handlers(isCurrent, app) {
    return {
      frames: () => this.#stage.frames(),
      microphone: (stream) => this.#microphones.opened(stream),
      microphoneGone: () => this.#fail(() => t("microphone_gone")),
      queued: (place) => this.#onQueue(place),
      ready: ({ session_id: session }) => {
        this.#session = session;
        this.#note(() => "");
        this.#to("listening");
        this.#showing = setInterval(() => this.#showSpeech(), SHOW_MS);
      },
      result: (result, answeredMs, aheadS) => this.#onResult(result, answeredMs, aheadS),
      held: (isHeld) => this.#to(isHeld ? "paused" : "listening"),
      fileProgress: (atS) => this.#showProgress(atS),
      fileEnd: () => this.#stopFile(),
      error: (error) => this.#note(() => errorWords(error), { bad: true, passes: true }),
      end: (reason) => isCurrent() && this.#onEnd(reason, app),
    };
  }

  /** @param {EngineQueue} place */
  #onQueue({ position, estimated_wait_s: waitS }) {
    if (!position) {
      this.#note(() => "");
      return;
    }
    this.#to("waiting");
    const seconds = typeof waitS === "number" ? Math.max(1, Math.round(waitS)) : null;
    this.#note(() => {
      const wait = seconds === null ? "" : t("queue_wait", { time: t("seconds", { count: seconds }) });
      return t("queue", { position, wait });
    });
  }

  /**
   * @param {DuplexResult} result
   * @param {number} answeredMs
   * @param {number} aheadS
   */
  #onResult(result, answeredMs, aheadS) {
    this.#chart.add(!result.is_listen);
    if (!result.is_listen && this.#notice.passes) this.#note(() => "");
    if (this.#state !== "paused") this.#to(aheadS > 0 ? "speaking" : "listening");
    write(parts.latency, `${Math.round(answeredMs)} ms`);
    write(parts.cost, `${Math.round(result.wall_clock_ms)} ms`);
    write(parts.ahead, `${Math.round(aheadS * 1000)} ms`);
    write(parts.context, result.kv_cache_length ? t("tokens", { count: result.kv_cache_length }) : "–");
    this.#showSpeech();
  }

  /**
   * @param {EndReason | null} reason
   * @param {"omni" | "audio_duplex"} app
   */
  async #onEnd(reason, app) {
    this.#showSpeech();
    clearInterval(this.#showing);
    this.#spoken.end();
    this.#conversation = null;
    this.#dropFile();
    this.#stage.close();
    this.#to(reason ? "over" : "ready");
    if (this.#session) this.#kept.show(this.#session);
    if (!reason) return;
    if (reason.code !== "refused") {
      this.#fail(() => endWords(reason));
      return;
    }
    const why = await whyRefused(app);
    if (!this.#conversation) this.#fail(() => why);
  }

  async #chooseFile() {
    const [file] = parts.file.files ?? [];
    parts.file.value = "";
    if (!file) return;
    try {
      const source = await FileSource.open(file);
      this.#conversation?.stopFile();
      this.#dropFile();
      this.#file = source;
      if (source.isFilm) this.#stage.useFilm(source.player);
      write(parts.fileName, source.name);
      this.#showProgress(0);
      this.#note(() => (this.#conversation ? "" : t("file_ready", { name: source.name })));
      this.#conversation?.useFile(source);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      this.#fail(() => messageOf(error));
    }
    this.#show();
  }

  /** @param {number} atS */
  #showProgress(atS) {
    const lengthS = this.#file?.durationS ?? 0;
    // Without a known length the bar only shows that something is played.
    if (lengthS) parts.fileProgress.value = atS / lengthS;
    else parts.fileProgress.removeAttribute("value");
    const at = clockOf(atS * 1_000);
    write(parts.fileTime, lengthS ? t("file_time", { at, length: clockOf(lengthS * 1_000) }) : at);
  }

  /** Go on with the microphone, which was not opened where the conversation began with the file. */
  #stopFile() {
    const conversation = this.#conversation;
    conversation?.stopFile();
    this.#dropFile();
    this.#note(() => "");
    this.#show();
    if (conversation && !conversation.hasMicrophone) this.#try(() => conversation.useMicrophone(this.#microphones.device));
  }

  #dropFile() {
    this.#stage.useFilm(null);
    this.#file?.close();
    this.#file = null;
  }

  /** @param {boolean} forces */
  #force(forces) {
    this.#conversation?.force(forces);
    parts.listen.classList.toggle("pressed", forces && IN_CONVERSATION.has(this.#state));
  }

  /** @param {() => Promise<void> | undefined} action that may fail */
  async #try(action) {
    try {
      await action();
    } catch (error) {
      this.#fail(() => messageOf(error));
    }
  }

  /** @param {() => string} say */
  #fail(say) {
    this.#note(say, { bad: true });
  }

  /**
   * @param {() => string} say an empty text removes the notice
   * @param {{ bad?: boolean, passes?: boolean }} [options]
   */
  #note(say, { bad = false, passes = false } = {}) {
    this.#notice = { say, bad, passes };
    showNotice(parts.notice, say(), { bad });
  }

  /** @param {State} state */
  #to(state) {
    this.#state = state;
    this.#show();
  }

  #showSpeech() {
    const speech = this.#conversation?.speech;
    if (speech) this.#spoken.show(speech.spoken, speech.heardS);
  }

  /** Show the state, in the language of the page. */
  #show() {
    const state = this.#state;
    const isHeld = state === "paused";
    document.body.dataset.state = state;
    write(parts.state, t(`state_${state}`));
    write(parts.talkLabel, t(BEGUN.has(state) ? "hang_up" : "talk"));
    parts.pause.disabled = parts.listen.disabled = !IN_CONVERSATION.has(state);
    parts.pause.setAttribute("aria-pressed", String(isHeld));
    parts.pause.ariaLabel = t(isHeld ? "resume" : "pause");
    write(parts.pauseCaption, t(isHeld ? "resume" : "pause"));
    parts.camera.setAttribute("aria-pressed", String(this.#stage.isOn));
    parts.camera.ariaLabel = t(this.#stage.isOn ? "hide_camera" : "show_camera");
    write(parts.cameraCaption, t(this.#stage.isOn ? "hide" : "camera"));
    parts.fileBar.hidden = this.#file === null;
    parts.prompt.disabled = BEGUN.has(state);
    this.#presets.lock(BEGUN.has(state));
    showNotice(parts.notice, this.#notice.say(), { bad: this.#notice.bad });
  }
}

translate(document);
new OmniPage();
