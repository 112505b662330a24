// What the bot is sent: the microphone as it is, the microphone with a gain, or a file in its place. Decides which stream that is;
// the call sends it.

import { CallError } from "./call.js";
import { within } from "./deadline.js";
import { t } from "./language.js";

// Of a file: decoded, half an hour in stereo takes 230 MB of the browser.
export const MOST_BYTES = 60_000_000;
export const MOST_S = 1_800;
// The rate at which the bot listens.
const FILE_HZ = 16_000;
// A file on this machine has its first second read at once.
const METADATA_MS = 10_000;
// A browser finds the length of a file without one by going to its end.
const FAR_S = 1e7;
// A gain that jumps is heard as a click.
const GLIDE_S = 0.02;

/**
 * @typedef {object} PlayedFile
 * @property {AudioBuffer} sound
 * @property {MediaStreamAudioDestinationNode} destination
 * @property {AudioBufferSourceNode | null} node null while it is held
 * @property {number} began_s time at which its beginning sounded, or would have
 * @property {number} place_s where it is held
 */

/** @param {number} gain_db */
export function factorOf(gain_db) {
  return 10 ** (gain_db / 20);
}

export class SoundSource {
  #context;
  #changed;
  /** @type {MediaStream | null} */
  #microphone = null;
  #gain_db = 0;
  #open = true;
  /** @type {{ of: MediaStream, node: MediaStreamAudioSourceNode, gain: GainNode, stream: MediaStream } | null} */
  #amplified = null;
  /** @type {PlayedFile | null} */
  #file = null;
  /** @type {MediaStreamAudioDestinationNode | null} what the page plays in place of the microphone */
  #inserted = null;
  #isHeld = false;

  /**
   * @param {AudioContext} context
   * @param {() => void} changed another stream is to be sent
   */
  constructor(context, changed) {
    this.#context = context;
    this.#changed = changed;
  }

  /** The stream to be sent; null for none. */
  get stream() {
    if (this.#file) return this.#file.destination.stream;
    if (this.#inserted) return this.#inserted.stream;
    if (!this.#microphone || this.#gain_db === 0) return this.#microphone;
    return this.#amplify(this.#microphone).stream;
  }

  get microphone() {
    return this.#microphone;
  }

  set microphone(stream) {
    this.#microphone = stream;
    this.#endAmplified();
    this.#enable();
    this.#changed();
  }

  /** @param {boolean} isOpen whether the microphone is heard; a file is, in either case */
  set open(isOpen) {
    this.#open = isOpen;
    this.#enable();
  }

  /** @param {number} gain_db of the microphone; at 0 its own track is sent */
  set gain_db(gain_db) {
    const before = this.#gain_db;
    this.#gain_db = gain_db;
    if (this.#amplified) this.#amplified.gain.gain.setTargetAtTime(factorOf(gain_db), this.#context.currentTime, GLIDE_S);
    if ((before === 0) === (gain_db === 0)) return;
    if (gain_db === 0) this.#endAmplified();
    this.#changed();
  }

  /**
   * Send a file in place of the microphone, until its end or stop().
   *
   * @param {AudioBuffer} sound
   */
  play(sound) {
    this.#endFile();
    this.#file = { sound, destination: this.#destination(), node: null, began_s: 0, place_s: 0 };
    if (!this.#isHeld) this.#runFile(this.#file);
    this.#changed();
  }

  /**
   * Hold the file at its place, or let it go on: the bot hears nothing of it while the call is on hold.
   *
   * @param {boolean} isHeld
   */
  hold(isHeld) {
    if (isHeld === this.#isHeld) return;
    if (isHeld && this.#file) {
      this.#file.place_s = this.place_s ?? 0;
      endNode(this.#file.node);
      this.#file.node = null;
    }
    this.#isHeld = isHeld;
    if (!isHeld && this.#file) this.#runFile(this.#file);
  }

  /** Send the microphone again. */
  stop() {
    if (!this.#file) return;
    this.#endFile();
    this.#changed();
  }

  /**
   * Send what is connected to the returned node, in place of the microphone, until withdraw().
   *
   * @returns {AudioNode}
   */
  insert() {
    this.#inserted = this.#destination();
    this.#changed();
    return this.#inserted;
  }

  withdraw() {
    if (!this.#inserted) return;
    this.#inserted = null;
    this.#changed();
  }

  /** Place in the file that is being played, in seconds; null without one. */
  get place_s() {
    if (!this.#file) return null;
    const { node, place_s, began_s, sound } = this.#file;
    return node ? Math.min(sound.duration, this.#context.currentTime - began_s) : place_s;
  }

  #enable() {
    for (const track of this.#microphone?.getAudioTracks() ?? []) track.enabled = this.#open;
  }

  #destination() {
    const destination = this.#context.createMediaStreamDestination();
    destination.channelCountMode = "explicit";
    destination.channelCount = 1;
    return destination;
  }

  /** @param {MediaStream} microphone */
  #amplify(microphone) {
    if (this.#amplified?.of === microphone) return this.#amplified;
    const node = this.#context.createMediaStreamSource(microphone);
    const gain = this.#context.createGain();
    gain.gain.value = factorOf(this.#gain_db);
    const destination = this.#destination();
    node.connect(gain).connect(destination);
    this.#amplified = { of: microphone, node, gain, stream: destination.stream };
    return this.#amplified;
  }

  #endAmplified() {
    this.#amplified?.node.disconnect();
    this.#amplified?.gain.disconnect();
    this.#amplified = null;
  }

  /** @param {PlayedFile} file */
  #runFile(file) {
    const node = this.#context.createBufferSource();
    node.buffer = file.sound;
    node.connect(file.destination);
    node.onended = () => this.stop();
    file.node = node;
    file.began_s = this.#context.currentTime - file.place_s;
    node.start(0, file.place_s);
  }

  #endFile() {
    endNode(this.#file?.node ?? null);
    this.#file = null;
  }
}

/**
 * End a sound without the event that it has ended.
 *
 * @param {AudioBufferSourceNode | null} node
 */
function endNode(node) {
  if (!node) return;
  node.onended = null;
  node.stop();
  node.disconnect();
}

/**
 * Decode an audio file. Throws CallError for one that is too large, too long, or no audio.
 *
 * @param {File} file
 */
export async function readSoundFile(file) {
  if (file.size > MOST_BYTES) throw new CallError(t("file_too_large", { name: file.name, most: MOST_BYTES / 1e6 }));
  // A small file can decode to hours: its length is read first.
  refuseLong(file, await lengthOf(file));
  const decoder = new OfflineAudioContext(1, 1, FILE_HZ);
  let sound;
  try {
    sound = await decoder.decodeAudioData(await file.arrayBuffer());
  } catch (error) {
    throw unreadable(file, error);
  }
  refuseLong(file, sound.duration);
  return sound;
}

/**
 * Return the length of an audio file in seconds.
 *
 * @param {File} file
 */
async function lengthOf(file) {
  const address = URL.createObjectURL(file);
  const probe = new Audio();
  probe.preload = "metadata";
  try {
    const known = new Promise((resolve, reject) => {
      const look = () => (Number.isFinite(probe.duration) ? resolve(probe.duration) : (probe.currentTime = FAR_S));
      probe.addEventListener("loadedmetadata", look);
      probe.addEventListener("durationchange", () => Number.isFinite(probe.duration) && resolve(probe.duration));
      probe.addEventListener("error", () => reject(probe.error));
    });
    probe.src = address;
    return await within(METADATA_MS, known);
  } catch (error) {
    throw unreadable(file, error);
  } finally {
    probe.removeAttribute("src");
    URL.revokeObjectURL(address);
  }
}

/**
 * @param {File} file
 * @param {number} length_s
 */
function refuseLong(file, length_s) {
  if (length_s > MOST_S) throw new CallError(t("file_too_long", { name: file.name, most: MOST_S / 60 }));
}

/**
 * @param {File} file
 * @param {unknown} error of the browser
 */
function unreadable(file, error) {
  console.info(error);
  return new CallError(t("file_unreadable", { name: file.name }));
}
