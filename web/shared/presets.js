// Ready-made beginnings of a conversation, and reference voices: what the deployment offers, and what the user has chosen. A field is
// shown only where there is something to choose; what the server refuses is said in words.

import { encode } from "./duplex_socket.js";
import { element, part } from "./element.js";
import { t } from "./language.js";
import { ApiError, request, requestJson } from "./session_api.js";

/** @import { Preset, ReferenceVoice } from "../types/server.js" */

const RATE_HZ = 16_000;
const READ_MS = 20_000;
// Engines take no longer reference voice; the server refuses it.
const MOST_VOICE_S = 60;
const PRESET_VOICE = "preset";
const DEFAULT_VOICE = "default";

/**
 * Return the instructions of a preset: of its prompt, or of the texts among its contents.
 *
 * @param {Preset} preset
 */
export function promptOf({ system_prompt: prompt, system_content: content = [] }) {
  return prompt ?? content.flatMap(({ type, text }) => (type === "text" && text ? [text] : [])).join("\n");
}

export class Presets {
  #mode = "audio_duplex";
  #wanted = this.#mode;
  /** @type {Record<string, Preset[]>} by mode */
  #presets = {};
  /** @type {ReferenceVoice[]} */
  #voices = [];
  /** Name of the deployment's voice for clients that bring none; empty without one. */
  #default = "";
  /** Name of the voice of the chosen preset; empty without one. */
  #ofPreset = "";
  #samples = "";
  #attempt = 0;
  #preset = part("preset", HTMLSelectElement);
  #presetBox = part("preset-box", HTMLElement);
  #about = part("preset-about", HTMLElement);
  #voice = part("voice", HTMLSelectElement);
  #voiceBox = part("voice-box", HTMLElement);
  #prompt;
  #failed;

  /**
   * @param {HTMLTextAreaElement} prompt is filled with the instructions of a preset
   * @param {(text: string) => void} failed is given the reason, for the user; empty once there is none
   */
  constructor(prompt, failed) {
    this.#prompt = prompt;
    this.#failed = failed;
    this.#preset.addEventListener("change", () => this.#choose());
    this.#voice.addEventListener("change", () => this.#useVoice(this.#voice.value));
  }

  /** The chosen voice as float32 samples at 16 kHz in base64; empty for the deployment's own. */
  get voice() {
    return this.#samples;
  }

  /** Read what the deployment offers. What cannot be read is not offered. */
  async load() {
    const offered = await Promise.allSettled([requestJson("GET", "/api/presets"), requestJson("GET", "/api/assets/ref_audio")]);
    const [presets, voices] = offered.map((each) => (each.status === "fulfilled" ? each.value : {}));
    this.#presets = presets;
    this.#voices = voices.ref_audios ?? [];
    this.#default = voices.default ?? "";
    this.show();
  }

  /** @param {boolean} sees the model sees the camera: presets differ */
  useCamera(sees) {
    this.#wanted = sees ? "omni" : "audio_duplex";
    if (!this.#preset.disabled) this.#changeMode();
  }

  /** @param {boolean} locked true in a conversation, for which nothing can be chosen any more */
  lock(locked) {
    this.#preset.disabled = this.#voice.disabled = locked;
    if (!locked) this.#changeMode();
  }

  /** Offer the presets of the mode; the chosen one stays, with its instructions unless those were changed by hand. */
  #changeMode() {
    if (this.#wanted === this.#mode) return;
    const chosen = this.#preset.value;
    const before = this.#of(chosen);
    this.#mode = this.#wanted;
    this.show();
    if (before && this.#of(chosen) && this.#prompt.value === promptOf(before)) this.#choose();
  }

  /** Show what can be chosen, in the language of the page. */
  show() {
    const presets = this.#presets[this.#mode] ?? [];
    fill(this.#preset, [["", t("no_preset")], ...presets.map(({ id, name }) => pair(id, name))]);
    this.#presetBox.hidden = !presets.length;
    this.#about.textContent = this.#of(this.#preset.value)?.description ?? "";
    /** @type {[string, string][]} */
    const voices = [["", t("deployment_voice")]];
    if (this.#ofPreset) voices.push([PRESET_VOICE, t("preset_voice", { name: this.#ofPreset })]);
    if (this.#default) voices.push([DEFAULT_VOICE, t("default_voice", { name: this.#default })]);
    fill(this.#voice, [...voices, ...this.#voices.map(({ id, name }) => pair(id, name))]);
    this.#voiceBox.hidden = this.#voice.options.length < 2;
  }

  /** @param {string} id */
  #of(id) {
    return this.#presets[this.#mode]?.find((each) => each.id === id);
  }

  async #choose() {
    const preset = this.#of(this.#preset.value);
    this.#prompt.value = preset ? promptOf(preset) : "";
    const had = this.#voice.value === PRESET_VOICE;
    this.#ofPreset = preset?.ref_audio?.name ?? "";
    this.show();
    if (this.#ofPreset) this.#voice.value = PRESET_VOICE;
    else if (had) this.#voice.value = "";
    await this.#useVoice(this.#voice.value);
  }

  /** @param {string} chosen */
  async #useVoice(chosen) {
    this.#attempt += 1;
    const attempt = this.#attempt;
    this.#samples = "";
    this.#failed("");
    try {
      const samples = await this.#read(chosen);
      if (attempt === this.#attempt) this.#samples = samples;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (attempt !== this.#attempt) return;
      this.#voice.value = "";
      this.#failed(error.denied ? t("voice_denied") : t("voice_failed", { why: error.message }));
    }
  }

  /**
   * Return the samples of a voice. Throws ApiError.
   *
   * @param {string} chosen
   */
  async #read(chosen) {
    if (!chosen) return "";
    if (chosen === DEFAULT_VOICE) return (await requestJson("GET", "/api/default_ref_audio")).base64;
    if (chosen !== PRESET_VOICE) return await samplesOf(chosen);
    const path = `/api/presets/${this.#mode}/${encodeURIComponent(this.#preset.value)}/audio`;
    const { ref_audio: sound } = await requestJson("GET", path);
    return sound?.data ?? "";
  }
}

/**
 * Return the samples of an uploaded voice. Throws ApiError: only operators may load one.
 *
 * @param {string} id
 */
async function samplesOf(id) {
  const path = `/api/assets/ref_audio/${encodeURIComponent(id)}`;
  const response = await request("GET", path, { signal: AbortSignal.timeout(READ_MS) });
  const file = await response.arrayBuffer();
  try {
    const context = new OfflineAudioContext(1, MOST_VOICE_S * RATE_HZ, RATE_HZ);
    const sound = await context.decodeAudioData(file);
    return encode(sound.getChannelData(0));
  } catch {
    throw new ApiError(t("voice_unreadable"));
  }
}

/**
 * @param {string} value
 * @param {string} text
 * @returns {[string, string]}
 */
function pair(value, text) {
  return [value, text];
}

/**
 * Offer values in a list; the chosen one stays chosen, if it is still there.
 *
 * @param {HTMLSelectElement} list
 * @param {[string, string][]} values with their texts
 */
function fill(list, values) {
  const chosen = list.value;
  list.replaceChildren(
    ...values.map(([value, text]) => {
      const option = element("option", "", text);
      option.value = value;
      return option;
    }),
  );
  list.value = values.some(([value]) => value === chosen) ? chosen : "";
}
