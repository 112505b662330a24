// Estimates on the operator's page: expected lengths of conversations, which an operator sets. Typed text survives a refresh.

import * as api from "./admin_api.js";
import { element, found, part, write } from "./element.js";
import { span } from "./lists.js";
import { locale, t, worded } from "./operator_language.js";

/** @import { EstimateSettings, Estimates } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { CardActions } from "./admin_card.js" */

/**
 * @typedef {object} Estimate
 * @property {keyof EstimateSettings} name
 * @property {"chat" | "half_duplex" | "audio_duplex" | "omni_duplex"} [learnt] task whose length is measured
 * @property {Key} label
 * @property {number} most
 * @property {Key} [hint]
 */

/** @type {Estimate[]} */
const ESTIMATES = [
  { name: "eta_chat_s", learnt: "chat", label: "admin_eta_chat", most: 86_400 },
  { name: "eta_half_duplex_s", learnt: "half_duplex", label: "admin_eta_half_duplex", most: 86_400 },
  { name: "eta_audio_duplex_s", learnt: "audio_duplex", label: "admin_eta_audio_duplex", most: 86_400 },
  { name: "eta_omni_duplex_s", learnt: "omni_duplex", label: "admin_eta_omni_duplex", most: 86_400 },
  { name: "ema_alpha", label: "admin_ema_alpha", most: 1, hint: "admin_ema_alpha_hint" },
];

const parts = {
  eta: part("eta", HTMLFormElement),
  etaRows: part("eta-rows", HTMLElement),
};

export class EstimatesCard {
  #actions;
  /** @type {Estimates | null} */
  #estimates = null;

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
    this.#make();
    parts.eta.addEventListener("submit", (event) => {
      event.preventDefault();
      actions.run(() => this.#save());
    });
    parts.eta.addEventListener("reset", (event) => {
      event.preventDefault();
      this.#write(true);
    });
    parts.eta.addEventListener("input", () => this.#mark());
  }

  /** @param {Estimates} estimates */
  show(estimates) {
    this.#estimates = estimates;
    this.#write(false);
  }

  #make() {
    for (const { name, label, most, hint } of ESTIMATES) {
      const row = element("div");
      const head = worded(element("label"), () => t(label));
      const input = element("input");
      input.type = "number";
      input.id = head.htmlFor = input.name = name;
      input.max = String(most);
      input.min = "0";
      input.step = "any";
      input.required = true;
      const note = element("small");
      if (hint) worded(note, () => t(hint));
      note.id = `${name}-note`;
      input.setAttribute("aria-describedby", note.id);
      row.append(head, input, note);
      parts.etaRows.append(row);
    }
  }

  /**
   * Show the settings, except where another value is being typed.
   *
   * @param {boolean} anyway also there
   */
  #write(anyway) {
    const estimates = this.#estimates;
    for (const { name, learnt } of ESTIMATES) {
      const input = inputOf(name);
      const value = String(estimates?.config[name] ?? "");
      const isUntouched = input.value === (input.dataset.set ?? "") && document.activeElement !== input;
      if (anyway || isUntouched) input.value = value;
      input.dataset.set = value;
      if (!learnt) continue;
      const note = estimates ? measured(estimates, learnt) : t("admin_nothing_measured");
      write(found(`#${name}-note`, HTMLElement, parts.etaRows), note);
    }
    this.#mark();
  }

  #mark() {
    const inputs = ESTIMATES.map(({ name }) => inputOf(name));
    const isChanged = inputs.some((input) => input.value !== input.dataset.set);
    for (const input of inputs) input.setAttribute("aria-invalid", String(!isGood(input)));
    for (const button of parts.eta.querySelectorAll("button")) button.disabled = !isChanged;
  }

  async #save() {
    /** @type {Partial<EstimateSettings>} */
    const changed = {};
    for (const { name, label, most } of ESTIMATES) {
      const input = inputOf(name);
      if (!isGood(input)) {
        input.focus();
        this.#actions.say(t("admin_eta_invalid", { label: t(label), most: most.toLocaleString(locale()) }), { bad: true });
        return;
      }
      if (input.value !== input.dataset.set) changed[name] = input.valueAsNumber;
    }
    this.#estimates = await api.setEstimates(changed);
    this.#write(true);
    this.#actions.say(t("admin_eta_saved"));
    await this.#actions.lookAgain();
  }
}

/** @param {keyof EstimateSettings} name */
function inputOf(name) {
  return found(`input[name="${name}"]`, HTMLInputElement, parts.etaRows);
}

/**
 * Return the sentence about the measured length of conversations.
 *
 * @param {Estimates} estimates
 * @param {NonNullable<Estimate["learnt"]>} task
 */
function measured(estimates, task) {
  const meanS = estimates[`ema_${task}_s`];
  const count = estimates[`ema_${task}_samples`];
  const least = estimates.ema_min_samples;
  if (!count || meanS === null) return t("admin_nothing_measured");
  return t(count < least ? "admin_measured_later" : "admin_measured_in_use", { time: span(meanS), count, least });
}

/** @type {(input: HTMLInputElement) => boolean} */
const isGood = ({ valueAsNumber: value, max }) => value > 0 && value <= Number(max);
