// The conversation to which the calls of this page belong: the one that the address names, or the one that the server reports.
// Keeps the address and the links in step with it, so that a page that is loaded again continues the same one.

import { Bubbles } from "./bubbles.js";
import { part } from "./element.js";
import { messageOf, required } from "./guards.js";
import { t } from "./language.js";
import { SessionRecord, lastTurns } from "./record.js";
import { ApiError, SessionApi } from "./session_api.js";

const EARLIER_TURNS = 20;

const links = {
  text: part("as-text", HTMLAnchorElement),
  fresh: part("new-conversation", HTMLAnchorElement),
};

export class Binding {
  #bubbles;
  /** @type {SessionApi | null} */
  #api = null;

  /** @param {Bubbles} bubbles */
  constructor(bubbles) {
    this.#bubbles = bubbles;
    const id = new URLSearchParams(location.search).get("session");
    if (id !== null && SessionApi.isId(id)) this.#api = new SessionApi(id);
    else if (id !== null) this.#write();
    const fresh = new URL(location.href);
    fresh.searchParams.delete("session");
    links.fresh.href = fresh.href;
  }

  /** The conversation that continues; null: the next call begins one. */
  get sessionId() {
    return this.#api?.id ?? null;
  }

  /**
   * Take the conversation to which the present call belongs, as the server reports it.
   *
   * @param {string} id
   */
  bind(id) {
    if (id === this.sessionId || !SessionApi.isId(id)) return;
    this.#api = new SessionApi(id);
    this.#write();
  }

  /** Put the end of the conversation before what is shown. Return what went wrong, in words for the user. */
  async showEarlier() {
    const api = this.#api;
    if (!api) return "";
    let events;
    try {
      events = await api.past();
    } catch (error) {
      if (!isGone(error)) return t("earlier_missing", { why: messageOf(error) });
      if (api === this.#api) this.#drop();
      return t("deleted");
    }
    if (!events.length) return "";
    // Made apart: a call may have begun in the meantime, and its bubbles come after these.
    const apart = document.createElement("div");
    const earlier = new SessionRecord(new Bubbles(apart));
    for (const event of lastTurns(events, EARLIER_TURNS)) earlier.take(event);
    this.#bubbles.prepend([...apart.children]);
    return "";
  }

  /** Return how to continue by telephone, in words for the user. Throws ApiError. */
  async byPhone() {
    const { code, number, expires_s: expiresS } = await required(this.#api, "the conversation").callCode();
    const minutes = Math.max(1, Math.round(expiresS / 60));
    return t("call_code", { number, code, minutes });
  }

  /** Return why the server has released the conversation, in words for the user. */
  async whyLost() {
    return (await this.dropDeleted()) || t("elsewhere");
  }

  /** Release the conversation if it was deleted, and return a text that says so; empty when it was not. */
  async dropDeleted() {
    const api = this.#api;
    try {
      await api?.info();
    } catch (error) {
      if (isGone(error)) {
        if (api === this.#api) this.#drop();
        return t("deleted");
      }
    }
    return "";
  }

  /**
   * Show the links to this conversation as text, and to a new one.
   *
   * @param {{ busy: boolean }} options
   */
  showLinks({ busy }) {
    const { text, fresh } = links;
    text.textContent = t(this.#api ? "open_as_text" : "text_only");
    text.href = this.#api ? `/s/${this.#api.id}` : "/s/new";
    // Leaving this page ends the call.
    text.target = busy ? "_blank" : "";
    fresh.hidden = !this.#api;
  }

  #drop() {
    this.#api = null;
    this.#write();
  }

  #write() {
    const address = new URL(location.href);
    if (this.#api) address.searchParams.set("session", this.#api.id);
    else address.searchParams.delete("session");
    history.replaceState(null, "", address);
  }
}

/** @param {unknown} error */
function isGone(error) {
  return error instanceof ApiError && error.gone;
}
