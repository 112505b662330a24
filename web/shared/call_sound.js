// Sound of a call, both ways: what is sent (sound_source.js), the bot's voice (voice_output.js), the meters of both sides and the latency
// of the answers. Decides which microphone is open and whether it is heard. Whatever is sent next reaches the call, the meter and the
// measurement of the latency in one place (#follow). Everything opened for a call ends with close().

import { CallError, openMicrophone } from "./call.js";
import { part } from "./element.js";
import { messageOf } from "./guards.js";
import { t } from "./language.js";
import { LatencyBeacon } from "./latency.js";
import { SideMeter } from "./side_meter.js";
import { stopTracks } from "./sight.js";
import { SoundSource } from "./sound_source.js";

/** @import { HeardLatency } from "../types/server.js" */
/** @import { Devices } from "./devices.js" */
/** @import { PushToTalk } from "./push_to_talk.js" */
/** @import { SoundSettings } from "./sound_settings.js" */
/** @import { SoundOutput, VoiceOutput } from "./voice_output.js" */

// A microphone that ends so soon after it took another one's place is none to go on with.
const SOON_MS = 2_000;

/**
 * Way to the bot: a call over WebRTC, or a conversation over a socket.
 *
 * @typedef {object} SoundPath
 * @property {boolean} closed
 * @property {(sound: MediaStream | null) => Promise<void>} send
 * @property {() => Promise<{ round_trip_ms: number, jitter_buffer_ms: number }>} transit
 */
/**
 * @typedef {object} SoundHandlers
 * @property {() => void} changed
 * @property {(text: string, options?: { bad?: boolean }) => void} say one line to the user
 * @property {(heard: HeardLatency) => void} heard an answer was measured
 */

export class CallSound {
  #raw;
  #devices;
  #settings;
  #push;
  #output;
  #rateHz;
  #on;
  #talk = part("talk", HTMLButtonElement);
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {SoundSource | null} */
  #source = null;
  /** @type {SideMeter[]} the caller's and the bot's */
  #meters = [];
  /** @type {SoundPath | null} */
  #call = null;
  /** @type {MediaStream | null} the bot's voice */
  #voice = null;
  /** @type {LatencyBeacon | null} */
  #beacon = null;
  #isMuted = false;
  /** @type {SoundSource | null} of the call for which a microphone is asked for */
  #asking = null;
  #turn = 0; // of the requests for a microphone: the newest counts
  #movedAt = -Infinity;
  #missing = ""; // loudspeaker whose absence was said

  /**
   * @param {object} page
   * @param {boolean} page.raw as for openMicrophone
   * @param {Devices} page.devices
   * @param {SoundSettings} page.settings
   * @param {PushToTalk} page.push
   * @param {VoiceOutput} page.output
   * @param {number} [page.rateHz] of the page's audio; without one the browser's
   * @param {SoundHandlers} on
   */
  constructor({ raw, devices, settings, push, output, rateHz }, on) {
    this.#raw = raw;
    this.#devices = devices;
    this.#settings = settings;
    this.#push = push;
    this.#output = output;
    this.#rateHz = rateHz;
    this.#on = on;
    this.adjust();
  }

  /** Begin. Called while a click still counts as one: browsers block sound without a click. */
  begin() {
    this.#context = new AudioContext(this.#rateHz ? { sampleRate: this.#rateHz } : {});
    this.#output.begin(this.#context);
    this.#source = new SoundSource(this.#context, () => this.#follow());
    this.#meters = [
      new SideMeter(this.#context, "you"),
      new SideMeter(this.#context, "bot", (level) => this.#talk.style.setProperty("--voice", level.toFixed(2))),
    ];
    this.#isMuted = false;
    this.adjust();
    this.#route();
  }

  /** True where the page can choose the loudspeaker of the bot's voice. */
  get choosesLoudspeaker() {
    return this.#output.choosesLoudspeaker;
  }

  /** Audio of the page while there is a call. */
  get context() {
    return this.#context;
  }

  /** What is sent, or would be; null without a microphone and a file. */
  get stream() {
    return this.#source?.stream ?? null;
  }

  get microphone() {
    return this.#source?.microphone ?? null;
  }

  get isMuted() {
    return this.microphone !== null && this.#isMuted;
  }

  /** Place in the file that is sent, in seconds; null while none is. */
  get place_s() {
    return this.#source?.place_s ?? null;
  }

  /**
   * Use a call from now on: the first one, or that which goes on after its connection was lost.
   *
   * @param {SoundPath} call
   */
  use(call) {
    this.#beacon?.close();
    this.#beacon = this.#voice = null;
    this.#call = call;
  }

  /** Send what is to be sent now: it may have changed while the call was opened. */
  send() {
    const call = this.#call;
    call?.send(this.stream).catch((error) => {
      if (!call.closed) this.#on.say(t("microphone_unusable", { why: messageOf(error) }), { bad: true });
    });
  }

  /** Apply what the user has set. */
  adjust() {
    const { gain_db, volume_percent, pushToTalk } = this.#settings.values;
    this.#output.volume = volume_percent / 100;
    if (this.#push.on !== pushToTalk) this.#push.on = pushToTalk;
    if (this.#source) this.#source.gain_db = gain_db;
    this.#open();
  }

  /** Hear the microphone, or no longer: after the button of push to talk was held or released. */
  followButton() {
    this.#open();
    this.#on.changed();
  }

  /** Go on after devices were plugged in or pulled out. */
  followDevices() {
    this.#route();
  }

  /** Mute the microphone, or no longer; without one, ask for it. */
  async toggleMicrophone() {
    if (!this.microphone) {
      await this.addMicrophone();
      return;
    }
    this.#isMuted = !this.#isMuted;
    this.#open();
    this.#on.changed();
  }

  /** Open the chosen microphone, or say why that is not possible. */
  async addMicrophone() {
    const source = this.#source;
    // The browser may be asking for permission: a second click must not open a second microphone.
    if (!source || this.#asking === source) return;
    this.#asking = source;
    try {
      await this.#take();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      if (source === this.#source) this.#on.say(`${error.message} ${t("type_instead")}`);
    } finally {
      if (this.#asking === source) this.#asking = null;
    }
    this.#on.changed();
  }

  /** Change to the microphone that is chosen now; the present one stays where that is not possible. */
  async changeMicrophone() {
    if (!this.microphone) return;
    try {
      await this.#take();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#on.say(error.message, { bad: true });
    }
  }

  /** Change to the loudspeaker that is chosen now. */
  changeLoudspeaker() {
    this.#missing = "";
    this.#route();
  }

  /** @param {MediaStream} stream the bot's voice */
  play(stream) {
    this.#voice = stream;
    this.#meters[1]?.follow(stream);
    this.#measure();
    this.#output.play(stream);
  }

  /**
   * Send a file in place of the microphone.
   *
   * @param {AudioBuffer} sound
   */
  playFile(sound) {
    this.#source?.play(sound);
  }

  stopFile() {
    this.#source?.stop();
  }

  /** Send what is connected to the returned node, in place of the microphone, until withdraw(); null without a call. */
  insert() {
    return this.#source?.insert() ?? null;
  }

  withdraw() {
    this.#source?.withdraw();
  }

  /** @param {boolean} isHeld true while the call is on hold: a file waits until it goes on */
  holdFile(isHeld) {
    this.#source?.hold(isHeld);
  }

  close() {
    const [source, microphone] = [this.#source, this.microphone];
    this.#call = null;
    this.#source = null;
    source?.stop();
    source?.withdraw();
    stopTracks(microphone);
    for (const meter of this.#meters.splice(0)) meter.close();
    this.#beacon?.close();
    this.#beacon = this.#voice = null;
    this.#context?.close();
    this.#context = null;
    this.#output.close();
  }

  /** Open the chosen microphone in place of the present one. Throws CallError. */
  async #take() {
    const source = this.#source;
    const turn = ++this.#turn;
    const before = this.microphone;
    const stream = await openMicrophone({ raw: this.#raw, deviceId: this.#devices.chosen("microphone").id });
    if (!source || source !== this.#source || turn !== this.#turn) {
      stopTracks(stream);
      return;
    }
    const [track] = stream.getAudioTracks();
    track.addEventListener("ended", () => this.#onEnded(stream));
    source.microphone = stream;
    stopTracks(before);
    this.#on.say(this.#devices.otherThanChosen("microphone", track));
    this.#devices.refresh();
  }

  /**
   * Go on with another microphone after one was pulled out.
   *
   * @param {MediaStream} stream
   */
  async #onEnded(stream) {
    if (stream !== this.microphone || !this.#source) return;
    this.#source.microphone = null;
    try {
      if (performance.now() - this.#movedAt < SOON_MS) throw new CallError(t("microphone_gone"));
      await this.#take();
      this.#movedAt = performance.now();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#on.say(`${t("microphone_gone")} ${t("type_instead")}`);
      return;
    }
    const [track] = this.microphone?.getAudioTracks() ?? [];
    if (track) this.#on.say(`${t("microphone_gone")} ${t("microphone_next", { name: track.label })}`);
  }

  /** Pass on what is sent now. */
  #follow() {
    if (!this.#source) return;
    const stream = this.stream;
    this.#meters[0]?.follow(stream);
    if (stream) this.#beacon?.follow(stream);
    this.#measure();
    this.send();
    this.#on.changed();
  }

  #open() {
    if (this.#source) this.#source.open = this.#push.on ? this.#push.held : !this.#isMuted;
  }

  /** Measure the latency of the answers, once there is a caller's voice and the bot's. */
  #measure() {
    const [call, stream] = [this.#call, this.stream];
    if (this.#beacon || !call || !stream || !this.#voice || !this.#context) return;
    this.#beacon = new LatencyBeacon(this.#context, () => call.transit(), this.#on.heard);
    // Without it the call is whole.
    this.#beacon.start(stream, this.#voice).catch((error) => console.info(`no latency is measured: ${messageOf(error)}`));
  }

  /** Use the chosen loudspeaker where it is there. */
  async #route() {
    if (!this.choosesLoudspeaker) return;
    const { id, label } = this.#devices.chosen("loudspeaker");
    const isThere = this.#devices.choices("loudspeaker").some((each) => each.id === id);
    if (this.#devices.misses("loudspeaker") && this.#missing !== id) {
      this.#missing = id;
      this.#on.say(t("loudspeaker_absent", { chosen: label }));
    }
    const wanted = isThere ? id : "";
    const outputs = [...this.#output.outputs, /** @type {(AudioContext & SoundOutput) | null} */ (this.#context)];
    try {
      // The context plays the chime, and its delay stands for that of the voice.
      for (const output of outputs) if (output && output.sinkId !== wanted) await output.setSinkId?.(wanted);
    } catch (error) {
      this.#on.say(t("loudspeaker_unusable", { why: messageOf(error) }), { bad: true });
    }
  }
}
