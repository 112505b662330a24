// Settings in force on the operator's page: read once, when the fold is opened, and searched here.

import * as api from "./admin_api.js";
import { rowHead } from "./admin_card.js";
import { element, part, write } from "./element.js";
import { t } from "./operator_language.js";

/** @import { SettingInForce } from "../types/server.js" */
/** @import { CardActions } from "./admin_card.js" */

// A deployment has about a thousand settings; so many rows are laid out in a moment.
const MOST_SHOWN = 200;

const parts = {
  fold: part("settings", HTMLDetailsElement),
  search: part("settings-search", HTMLInputElement),
  given: part("settings-given", HTMLInputElement),
  rows: part("settings-rows", HTMLElement),
  what: part("settings-what", HTMLElement),
};

/**
 * Return the settings in which every word of a search is found: in the name, the values or the meaning.
 *
 * @param {SettingInForce[]} settings
 * @param {string} search
 * @param {{ given: boolean }} options `given`: only those that the deployment sets
 */
export function matching(settings, search, { given }) {
  const sought = search.toLowerCase().split(/\s+/).filter(Boolean);
  return settings.filter(({ path, value, default: usual, is_given: isGiven, meaning }) => {
    const text = `${path} ${value} ${usual} ${meaning}`.toLowerCase();
    return (!given || isGiven) && sought.every((word) => text.includes(word));
  });
}

export class SettingsCard {
  #actions;
  /** @type {SettingInForce[]} */
  #settings = [];

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
    parts.fold.addEventListener("toggle", () => parts.fold.open && this.#actions.run(() => this.#read()));
    parts.search.addEventListener("input", () => this.#show());
    parts.given.addEventListener("change", () => this.#show());
  }

  async #read() {
    this.#settings = await api.settingsInForce();
    this.#show();
  }

  /** Show them, in the language of the page. */
  draw() {
    if (this.#settings.length) this.#show();
  }

  #show() {
    const found = matching(this.#settings, parts.search.value, { given: parts.given.checked });
    parts.rows.replaceChildren(...found.slice(0, MOST_SHOWN).map(rowOf));
    const more = found.length > MOST_SHOWN ? t("admin_settings_first", { most: MOST_SHOWN }) : "";
    const key = found.length === 1 ? "admin_one_setting" : "admin_settings_found";
    write(parts.what, t(key, { count: found.length, all: this.#settings.length, more }));
  }
}

/** @param {SettingInForce} setting */
function rowOf({ path, value, default: usual, is_given: isGiven, meaning }) {
  const made = element("tr");
  const name = element("code", "", path);
  name.title = meaning;
  const shown = element("td", "why");
  shown.append(element(isGiven ? "b" : "span", "", value));
  made.append(rowHead(name), shown, element("td", "why", isGiven ? usual || "–" : ""));
  return made;
}
