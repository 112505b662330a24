// Voice and behaviour of the next call: its voice, preset, reference voice and instructions. Shows what the server offers for the mode
// that is chosen, remembers all but the instructions in this browser, and plays a sample of a voice where the server speaks for this
// client. A call keeps what it began with, also over a new connection.

import { element, found, part, write } from "./element.js";
import { messageOf } from "./guards.js";
import { t } from "./language.js";
import { authorization } from "./token.js";

/** @import { CallChoices, ModeChoices, NamedChoice } from "../types/server.js" */
/** @import { Mode } from "./mode.js" */

const KEPT = "parley.choices";
const REQUEST_MS = 10_000;
const SAMPLE_MS = 20_000;
/** Fields of a call with a list, each with the role of its place on the page. */
const LISTS = { voice: "choice-voice", preset: "choice-preset", reference_voice: "choice-reference" };

/** @typedef {keyof typeof LISTS} ListName */

/** @type {ModeChoices} */
const NOTHING = { voices: [], presets: [], reference_voices: [], instructions: false };

export class Choices {
  #mode;
  /** @type {CallChoices | null} */
  #offered = null;
  /** @type {Promise<void>} */
  #known;
  /** @type {Record<string, string>} */
  #taken = {};
  #isBusy = false;
  /** @type {HTMLAudioElement | null} the sample that plays */
  #sample = null;
  #parts = {
    opener: part("choices", HTMLElement),
    dialog: part("choices-dialog", HTMLDialogElement),
    fields: part("choice-fields", HTMLFieldSetElement),
    hint: part("choice-hint", HTMLElement),
    about: part("choice-about", HTMLElement),
    hear: part("hear", HTMLButtonElement),
    instructions: part("choice-instructions", HTMLElement),
    text: found("#choice-instructions", HTMLTextAreaElement, document),
  };

  /** @param {Mode} mode */
  constructor(mode) {
    this.#mode = mode;
    this.#known = this.#load();
    part("modes", HTMLFieldSetElement).addEventListener("change", () => this.#show());
    for (const name of names()) {
      listOf(name).addEventListener("change", () => {
        remember(name, listOf(name).value);
        this.#show();
      });
    }
    part("choose", HTMLButtonElement).addEventListener("click", () => this.#parts.dialog.showModal());
    this.#parts.hear.addEventListener("click", () => this.#hear());
  }

  /** The choices of the call that is on. */
  get taken() {
    return this.#taken;
  }

  /**
   * Return the fields of a call that begins.
   *
   * @returns {Promise<Record<string, string>>}
   */
  async take() {
    await this.#known;
    this.#sample?.pause();
    const offer = this.#offer();
    /** @type {Record<string, string>} */
    const fields = {};
    for (const name of names()) {
      const value = listOf(name).value;
      if (value) fields[name] = value;
    }
    const written = this.#parts.text.value.trim();
    if (offer.instructions && written) fields.instructions = written;
    this.#taken = fields;
    return fields;
  }

  /**
   * Keep the choices from being changed during a call, and show them in the language of the page.
   *
   * @param {boolean} isBusy
   */
  lock(isBusy) {
    this.#isBusy = isBusy;
    this.#show();
  }

  async #load() {
    try {
      const response = await fetch("/api/choices", {
        headers: authorization(),
        signal: AbortSignal.timeout(REQUEST_MS),
      });
      this.#offered = response.ok ? await response.json() : null;
    } catch {
      this.#offered = null; // a call will report the reason
    }
    await this.#mode.known;
    this.#show();
  }

  #offer() {
    return this.#offered?.modes[this.#mode.chosen] ?? NOTHING;
  }

  #show() {
    const { opener, fields, hint, about, hear, instructions } = this.#parts;
    const offer = this.#offer();
    const kept = remembered();
    this.#list("voice", offer.voices.map((name) => ({ id: name, name, description: "" })), kept);
    this.#list("preset", offer.presets, kept);
    this.#list("reference_voice", offer.reference_voices, kept);
    instructions.hidden = !offer.instructions;
    hear.hidden = !this.#offered?.speaks;
    opener.hidden = !offer.instructions && names().every((name) => placeOf(name).hidden);
    fields.disabled = this.#isBusy;
    write(hint, t(this.#isBusy ? "choices_in_call" : "choices_next_call"));
    write(about, offer.presets.find(({ id }) => id === listOf("preset").value)?.description ?? "");
  }

  /**
   * Show the values of a field.
   *
   * @param {ListName} name
   * @param {NamedChoice[]} offered
   * @param {Record<string, string>} kept
   */
  #list(name, offered, kept) {
    const list = listOf(name);
    placeOf(name).hidden = offered.length === 0;
    const own = name === "voice" ? [] : [{ id: "", name: t("choice_own") }];
    const values = [...own, ...offered];
    const shown = values.map(({ id, name: label }) => {
      const option = element("option", undefined, label);
      option.value = id;
      return option;
    });
    const isSame = list.options.length === shown.length && shown.every((each, at) => each.text === list.options[at].text);
    if (!isSame) list.replaceChildren(...shown);
    const wanted = kept[name] ?? "";
    list.value = values.some(({ id }) => id === wanted) ? wanted : (values[0]?.id ?? "");
  }

  async #hear() {
    const { hint, hear } = this.#parts;
    this.#sample?.pause();
    hear.disabled = true;
    try {
      const response = await fetch("/v1/audio/speech", {
        method: "POST",
        headers: { "content-type": "application/json", ...authorization() },
        body: JSON.stringify({ model: "parley", voice: listOf("voice").value, input: t("hear_sample"), response_format: "wav" }),
        signal: AbortSignal.timeout(SAMPLE_MS),
      });
      if (!response.ok) throw new Error((await response.json()).error?.message ?? String(response.status));
      const address = URL.createObjectURL(await response.blob());
      this.#sample = new Audio(address);
      this.#sample.addEventListener("ended", () => URL.revokeObjectURL(address), { once: true });
      await this.#sample.play();
    } catch (error) {
      write(hint, t("no_sample", { why: messageOf(error) }));
    } finally {
      hear.disabled = false;
    }
  }
}

/** @returns {ListName[]} */
function names() {
  return /** @type {ListName[]} */ (Object.keys(LISTS));
}

/** @param {ListName} name */
function placeOf(name) {
  return part(LISTS[name], HTMLElement);
}

/** @param {ListName} name */
function listOf(name) {
  return found("select", HTMLSelectElement, placeOf(name));
}

/** @returns {Record<string, string>} */
function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return kept !== null && typeof kept === "object" ? kept : {};
  } catch {
    return {}; // another program has written there
  }
}

/**
 * @param {ListName} name
 * @param {string} value
 */
function remember(name, value) {
  localStorage.setItem(KEPT, JSON.stringify({ ...remembered(), [name]: value }));
}
