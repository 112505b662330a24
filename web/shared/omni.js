// Page of full duplex over a WebSocket: begins and ends conversations, and shows their state. What is heard is decided in
// omni_conversation.js and call_sound.js, what is seen in stage.js.

import { pictureOf } from "./attachments.js";
import { CallSound } from "./call_sound.js";
import { chime } from "./chime.js";
import { clockOf } from "./clock_text.js";
import { Devices } from "./devices.js";
import { element, part, showNotice, write } from "./element.js";
import { FileError, FileSource } from "./file_source.js";
import { messageOf } from "./guards.js";
import { chooseLanguage, t, translate, worded } from "./language.js";
import { DUPLEX_SPANS, LatencyHistory, duplexSpans } from "./latency_history.js";
import { MicrophoneButton } from "./microphone_button.js";
import { Conversation, RATE_HZ } from "./omni_conversation.js";
import { OmniTyping } from "./omni_typing.js";
import { OwnConversation } from "./own_conversation.js";
import { Presets } from "./presets.js";
import { PushToTalk } from "./push_to_talk.js";
import { endWords, errorWords, whyRefused } from "./refusals.js";
import { listenForKeys, press } from "./shortcuts.js";
import { SoundPanel } from "./sound_panel.js";
import { SoundSettings } from "./sound_settings.js";
import { SpokenView } from "./spoken_view.js";
import { Stage } from "./stage.js";
import { wordOf } from "./states.js";
import { UnitChart } from "./unit_chart.js";
import { NodeVoice } from "./voice_output.js";

/** @import { Attached, DuplexResult, EngineQueue, HeardLatency, Prepared } from "../types/server.js" */
/** @import { Device } from "./devices.js" */
/** @import { EndReason } from "./duplex_socket.js" */
/** @import { ConversationHandlers } from "./omni_conversation.js" */

/** @typedef {"ready" | "connecting" | "reconnecting" | "waiting" | "listening" | "speaking" | "paused" | "over"} State */

// As often as a syllable.
const SHOW_MS = 100;
const BEGUN = new Set(["connecting", "reconnecting", "waiting", "listening", "speaking", "paused"]);
const IN_CONVERSATION = new Set(["listening", "speaking", "paused"]);

const parts = {
  talk: part("talk", HTMLButtonElement),
  talkLabel: part("talk-label", HTMLElement),
  microphone: part("microphone", HTMLButtonElement),
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
  latency: part("answered", HTMLElement),
  cost: part("cost", HTMLElement),
  ahead: part("ahead", HTMLElement),
  context: part("context", HTMLElement),
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
};
const raw = new URLSearchParams(location.search).has("raw");

class OmniPage {
  /** @type {Conversation | null} */
  #conversation = null;
  /** @type {State} */
  #state = "ready";
  /** @type {{ say: () => string, bad: boolean, passes: boolean }} in the language of the page; `passes`: the bot's next words end it */
  #notice = { say: () => "", bad: false, passes: false };
  #ofDevice = ""; // notice on a device, which only another one of its kind takes back
  /** @type {FileSource | null} chosen, or played */
  #file = null;
  #session = "";
  /** @type {DuplexResult | null} the unit with which the last answer began */
  #answer = null;
  #wasListening = true;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #showing;
  #settings = new SoundSettings();
  #devices = new Devices(() => this.#onDevices());
  #push = new PushToTalk(parts.microphone, {
    isOn: this.#settings.values.pushToTalk,
    isReady: () => IN_CONVERSATION.has(this.#state) && this.#sound.microphone !== null,
    changed: () => this.#sound.followButton(),
  });
  #output = new NodeVoice();
  #sound = new CallSound(
    { raw, devices: this.#devices, settings: this.#settings, push: this.#push, output: this.#output, rateHz: RATE_HZ },
    {
      changed: () => this.#show(),
      say: (text, options) => this.#sayOfDevice(text, options),
      heard: (heard) => this.#onHeard(heard),
    },
  );
  #button = new MicrophoneButton(parts.microphone);
  #panel = new SoundPanel(
    { sound: this.#sound, devices: this.#devices, settings: this.#settings, playsFiles: false },
    { chosen: (device) => this.#onChosen(device) },
  );
  #stage = new Stage(this.#devices, {
    changed: (shows) => {
      this.#presets.useCamera(shows);
      this.#show();
    },
    failed: (error) => this.#fail(() => messageOf(error)),
    other: (words) => this.#sayOfDevice(words),
    gone: () => this.#fail(() => t("camera_gone")),
  });
  #presets = new Presets(parts.prompt, (text) => this.#note(() => text, { bad: Boolean(text) }));
  #spoken = new SpokenView(part("said", HTMLElement), part("subtitles", HTMLElement), part("subtitles-switch", HTMLButtonElement));
  #typing = new OmniTyping({
    send: (text, pictures) => this.#sendTyped(text, pictures),
    refused: (problem) => this.#note(() => problem, { bad: Boolean(problem) }),
  });
  #latency = new LatencyHistory(part("latency", HTMLDetailsElement), DUPLEX_SPANS);
  #chart = new UnitChart(part("units", HTMLCanvasElement));
  #kept = new OwnConversation();

  constructor() {
    chooseLanguage(part("language", HTMLSelectElement), () => {
      this.#stage.show();
      this.#presets.show();
      this.#panel.showDevices();
      this.#latency.show();
      this.#show();
    });
    parts.talk.addEventListener("click", () => (this.#conversation ? this.#conversation.close() : this.#start()));
    parts.microphone.addEventListener("click", () => this.#clickMicrophone());
    parts.pause.addEventListener("click", () => this.#conversation?.pause());
    parts.camera.addEventListener("click", () => (this.#stage.isOn ? this.#stage.close() : this.#stage.open()));
    parts.file.addEventListener("change", () => this.#chooseFile());
    parts.fileStop.addEventListener("click", () => this.#stopFile());
    parts.listen.addEventListener("pointerdown", () => this.#force(true));
    for (const name of ["pointerup", "pointerleave", "blur"]) parts.listen.addEventListener(name, () => this.#force(false));
    parts.listen.addEventListener("keydown", ({ key }) => [" ", "Enter"].includes(key) && this.#force(true));
    parts.listen.addEventListener("keyup", ({ key }) => [" ", "Enter"].includes(key) && this.#force(false));
    listenForKeys(
      { mute: () => press(parts.microphone), camera: () => press(parts.camera), help: () => this.#panel.openShortcuts() },
      () => this.#settings.values.shortcuts,
    );
    addEventListener("pagehide", () => this.#conversation?.close());
    this.#presets.load();
    this.#devices.refresh();
    this.#show();
  }

  async #start() {
    const sees = this.#stage.isOn || Boolean(this.#file?.isFilm);
    const app = sees ? "omni" : "audio_duplex";
    this.#sound.begin();
    /** @type {Conversation} */
    const mine = new Conversation(this.#handlers(() => mine === this.#conversation, app), { sound: this.#sound, output: this.#output });
    this.#conversation = mine;
    this.#sound.use(mine);
    this.#session = "";
    this.#answer = null;
    this.#kept.hide();
    this.#note(() => "");
    this.#to("connecting");
    const beginning = { prompt: parts.prompt.value.trim(), voice: this.#presets.voice, sees, file: this.#file };
    try {
      // What the file says is heard in place of the microphone, for which nothing has to be permitted before.
      if (!this.#file) await this.#sound.addMicrophone();
      if (!mine.closed) await mine.open(beginning);
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
      queued: (place) => this.#onQueue(place),
      ready: (facts) => this.#onReady(facts),
      lost: ({ code }) => {
        this.#to("reconnecting");
        this.#note(() => t(code === "lost" ? "reconnecting" : "reconnecting_after_restart"));
      },
      result: (result, answeredMs, aheadS) => this.#onResult(result, answeredMs, aheadS),
      held: (isHeld) => this.#to(isHeld ? "paused" : "listening"),
      fileProgress: (atS) => this.#showProgress(atS),
      fileEnd: () => this.#stopFile(),
      error: (error) => this.#note(() => errorWords(error), { bad: true, passes: true }),
      end: (reason) => isCurrent() && this.#onEnd(reason, app),
    };
  }

  /** @param {Prepared} facts */
  #onReady(facts) {
    if (this.#session) this.#spoken.add(worded(element("p", "typed"), () => t("reconnected")));
    else this.#showing = setInterval(() => this.#showSpeech(), SHOW_MS);
    this.#session = facts.session_id;
    // A microphone that could not be opened is still to be read.
    if (!this.#ofDevice) this.#note(() => "");
    this.#typing.offer(facts);
    this.#to("listening");
  }

  /** @param {EngineQueue} place */
  #onQueue({ position, estimated_wait_s: waitS }) {
    if (!position) {
      const { context } = this.#sound;
      if (this.#state === "waiting" && context && this.#settings.values.chime) chime(context);
      this.#note(() => "");
      if (this.#state === "waiting") this.#to("connecting");
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
    if (!result.is_listen && this.#wasListening) this.#answer = result;
    this.#wasListening = result.is_listen || result.end_of_turn;
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
    this.#sound.close();
    this.#push.release();
    this.#typing.offer(null);
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

  /**
   * @param {string} text
   * @param {Attached[]} pictures
   */
  #sendTyped(text, pictures) {
    const conversation = this.#conversation;
    if (!conversation || (text && !conversation.type(text))) return false;
    conversation.show(pictures.map(({ data }) => data));
    const line = element("p", "typed");
    line.append(worded(element("b"), () => `${t("you")}: `), text, ...pictures.map(pictureOf));
    this.#spoken.add(line);
    return true;
  }

  /** @param {HeardLatency} heard */
  #onHeard(heard) {
    if (!this.#answer) return;
    this.#latency.add(duplexSpans(heard.heard_ms, this.#answer));
    this.#conversation?.report(heard);
  }

  #clickMicrophone() {
    // Held, and not clicked, in that mode.
    if (this.#conversation && !(this.#push.on && this.#sound.microphone)) this.#sound.toggleMicrophone();
  }

  #onDevices() {
    this.#sound.followDevices();
    this.#panel.showDevices();
    this.#stage.show();
  }

  /** @param {Device} device */
  async #onChosen(device) {
    if (device === "microphone") await this.#sound.changeMicrophone();
    else if (device === "loudspeaker") this.#sound.changeLoudspeaker();
    else if (this.#stage.isOn) await this.#stage.open();
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
    if (conversation && !this.#sound.microphone) this.#sound.addMicrophone();
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

  /**
   * Show one line on a device, which the panel may cover; an empty text removes it.
   *
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #sayOfDevice(text, options) {
    const before = this.#ofDevice;
    if (text || (before && parts.notice.textContent === before)) this.#note(() => text, options);
    this.#ofDevice = text;
    this.#panel.say(text, options);
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
    this.#ofDevice = "";
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
    const isUp = IN_CONVERSATION.has(state);
    document.body.dataset.state = state;
    this.#showMicrophone(isUp);
    write(parts.talkLabel, t(BEGUN.has(state) ? "hang_up" : "talk"));
    parts.pause.disabled = parts.listen.disabled = !isUp;
    parts.pause.setAttribute("aria-pressed", String(isHeld));
    parts.pause.ariaLabel = t(isHeld ? "resume" : "pause");
    write(parts.pauseCaption, t(isHeld ? "resume" : "pause"));
    parts.camera.setAttribute("aria-pressed", String(this.#stage.isOn));
    parts.camera.ariaLabel = t(this.#stage.isOn ? "hide_camera" : "show_camera");
    write(parts.cameraCaption, t(this.#stage.isOn ? "hide" : "camera"));
    parts.fileBar.hidden = this.#file === null;
    parts.prompt.disabled = BEGUN.has(state);
    this.#presets.lock(BEGUN.has(state));
    this.#typing.permit(isUp && !isHeld);
    this.#panel.show({ inCall: isUp, sees: true });
    showNotice(parts.notice, this.#notice.say(), { bad: this.#notice.bad });
  }

  /**
   * Show whether the bot hears the user, and what the microphone's button does.
   *
   * @param {boolean} isUp
   */
  #showMicrophone(isUp) {
    const { on: pushes, held: isHeld } = this.#push;
    const { isMuted, microphone } = this.#sound;
    const deaf = microphone === null;
    write(parts.state, t(`state_${wordOf(this.#state, { deaf, isMuted, pushes, isHeld, playsFile: this.#file !== null })}`));
    this.#button.show({ isUp, deaf, isMuted, pushes, isHeld });
  }
}

translate(document);
new OmniPage();
