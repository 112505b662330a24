// Where the bot's voice is heard: in an element that plays the stream of a call, or in the page's own audio. Each has a volume and a
// loudspeaker; what is played, and when, is decided elsewhere (call_sound.js, duplex_player.js).

import { nameOf } from "./guards.js";

/** @typedef {{ sinkId?: string, setSinkId?: (id: string) => Promise<void> }} SoundOutput older browsers cannot choose its device */
/**
 * @typedef {object} VoiceOutput
 * @property {number} volume 0..1
 * @property {boolean} choosesLoudspeaker the page can choose its device
 * @property {SoundOutput[]} outputs of this voice alone, without the page's audio
 * @property {(context: AudioContext) => void} begin
 * @property {(stream: MediaStream) => void} play
 * @property {() => void} close
 */

/** Return whether this browser lets a page choose the loudspeaker of an element. */
export function choosesLoudspeaker() {
  return "setSinkId" in HTMLMediaElement.prototype;
}

/** Voice of a call over WebRTC. */
export class ElementVoice {
  #player;
  #blocked;

  /**
   * @param {HTMLAudioElement} player
   * @param {(isBlocked: boolean) => void} blocked the browser plays nothing before the next click, or plays it now
   */
  constructor(player, blocked) {
    this.#player = player;
    this.#blocked = blocked;
  }

  get choosesLoudspeaker() {
    return choosesLoudspeaker();
  }

  /** @returns {SoundOutput[]} */
  get outputs() {
    return [this.#player];
  }

  get volume() {
    return this.#player.volume;
  }

  set volume(volume) {
    this.#player.volume = volume;
  }

  begin() {}

  /** @param {MediaStream} stream */
  play(stream) {
    this.#player.srcObject = stream;
    this.#player.play().catch((error) => {
      if (nameOf(error) !== "NotAllowedError") return; // replaced or closed in the meantime
      this.#blocked(true);
      const release = () => {
        this.#player.play().then(() => this.#blocked(false), () => {});
      };
      document.addEventListener("pointerdown", release, { once: true });
    });
  }

  close() {
    this.#player.srcObject = null;
  }
}

/** Voice that the page plays itself, piece by piece: its nodes end in the page's audio, and a stream of them is metered. */
export class NodeVoice {
  #volume = 1;
  /** @type {{ input: GainNode, level: GainNode, tap: MediaStreamAudioDestinationNode } | null} */
  #nodes = null;

  get choosesLoudspeaker() {
    return "setSinkId" in AudioContext.prototype;
  }

  /** @returns {SoundOutput[]} */
  get outputs() {
    return [];
  }

  get volume() {
    return this.#volume;
  }

  set volume(volume) {
    this.#volume = volume;
    if (this.#nodes) this.#nodes.level.gain.value = volume;
  }

  /** Node to which the voice is connected; null without a conversation. */
  get input() {
    return this.#nodes?.input ?? null;
  }

  /** What is played, before the volume; null without a conversation. */
  get stream() {
    return this.#nodes?.tap.stream ?? null;
  }

  /** @param {AudioContext} context */
  begin(context) {
    const input = new GainNode(context);
    const level = new GainNode(context, { gain: this.#volume });
    const tap = context.createMediaStreamDestination();
    input.connect(tap);
    input.connect(level).connect(context.destination);
    this.#nodes = { input, level, tap };
  }

  play() {}

  close() {
    this.#nodes?.input.disconnect();
    this.#nodes = null;
  }
}
