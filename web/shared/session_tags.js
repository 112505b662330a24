// Tags of a conversation, for an operator: shown, added and removed. Who is no operator does not see them. The events of the session
// say which there are, so that a change elsewhere shows here too.

import { operator } from "./admin_api.js";
import { element, part, showNotice } from "./element.js";
import { messageOf } from "./guards.js";
import { t } from "./language.js";
import { ApiError } from "./session_api.js";

/** @import { SessionEvent } from "../types/server.js" */
/** @import { SessionApi } from "./session_api.js" */

export class SessionTags {
  #api;
  #root;
  #list;
  #typed;
  #notice;
  /** @type {string[]} */
  #tags = [];
  #seq = 0; // of the event that names them

  /**
   * @param {SessionApi} api
   * @param {HTMLElement} root
   */
  constructor(api, root) {
    this.#api = api;
    this.#root = root;
    this.#list = part("tag-list", HTMLUListElement, root);
    this.#typed = part("tag-typed", HTMLInputElement, root);
    this.#notice = part("tag-notice", HTMLElement, root);
    part("tag-form", HTMLFormElement, root).addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    this.#offer();
  }

  /**
   * Take an event of the session, if it names the tags.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    if (event.kind !== "tags" || event.seq < this.#seq) return;
    this.#seq = event.seq;
    this.#show(event.payload.tags);
  }

  async #offer() {
    // A server that is away is said elsewhere on the page.
    const { is_operator: isOperator } = await operator().catch(() => ({ is_operator: false }));
    this.#root.hidden = !isOperator;
  }

  async #add() {
    const tag = this.#typed.value.trim();
    if (tag && (await this.#change(() => this.#api.addTag(tag)))) this.#typed.value = "";
  }

  /**
   * Change the tags and show them; return false where the server refuses, and show why.
   *
   * @param {() => Promise<string[]>} change
   */
  async #change(change) {
    try {
      this.#show(await change());
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showNotice(this.#notice, messageOf(error), { bad: true });
      return false;
    }
    showNotice(this.#notice, "");
    return true;
  }

  /** Show the tags, in the language of the page. */
  draw() {
    this.#show(this.#tags);
  }

  /** @param {string[]} tags */
  #show(tags) {
    const hadFocus = this.#list.contains(document.activeElement);
    this.#tags = tags;
    this.#list.replaceChildren(...this.#tags.map((tag) => this.#item(tag)));
    if (hadFocus) this.#typed.focus();
  }

  /** @param {string} tag */
  #item(tag) {
    const item = element("li", "tag-chip", tag);
    const remove = element("button", "", "×");
    remove.type = "button";
    remove.ariaLabel = t("remove_tag", { tag });
    remove.addEventListener("click", () => this.#change(() => this.#api.removeTag(tag)));
    item.append(remove);
    return item;
  }
}
