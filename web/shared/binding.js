// Which conversation the calls of this page are a part of: the one that the address names, or the one that the server tells.
// Keeps the address and the links in step with it, so that a page that is loaded again goes on with the same one.

import { Bubbles } from "./bubbles.js";
import { part } from "./element.js";
import { SessionRecord, lastTurns } from "./record.js";
import { SessionApi } from "./session_api.js";

const EARLIER_TURNS = 20;
const DELETED = "That conversation was deleted. Press Talk to begin a new one.";
const ELSEWHERE = "This conversation continues elsewhere. Press Talk to continue it here.";

const links = { text: part("as-text"), fresh: part("new-conversation") };

export class Binding {
  #bubbles;
  #api = null;

  constructor(bubbles) {
    this.#bubbles = bubbles;
    const id = new URLSearchParams(location.search).get("session");
    if (SessionApi.isId(id)) this.#api = new SessionApi(id);
    else if (id !== null) this.#write();
    const fresh = new URL(location.href);
    fresh.searchParams.delete("session");
    links.fresh.href = fresh.href;
  }

  /** The conversation that goes on; null: the next call begins one. */
  get sessionId() {
    return this.#api?.id ?? null;
  }

  /** The server says which conversation a call is a part of. */
  bind(id) {
    if (id === this.sessionId || !SessionApi.isId(id)) return;
    this.#api = new SessionApi(id);
    this.#write();
  }

  /** Puts the end of the conversation in front of what is shown. Returns what went wrong, in words for the person. */
  async showEarlier() {
    const api = this.#api;
    if (!api) return "";
    let events;
    try {
      events = await api.past();
    } catch (error) {
      if (!error.gone) return `The earlier conversation cannot be shown. ${error.message}`;
      if (api === this.#api) this.#drop();
      return DELETED;
    }
    if (!events.length) return "";
    // Made apart: a call may have begun meanwhile, and its bubbles come behind these.
    const apart = document.createElement("div");
    const earlier = new SessionRecord(new Bubbles(apart));
    for (const event of lastTurns(events, EARLIER_TURNS)) earlier.take(event);
    this.#bubbles.prepend([...apart.children]);
    return "";
  }

  /** How to go on by telephone, in words for the person. Throws ApiError. */
  async byPhone() {
    const { code, number, expires_s: expiresS } = await this.#api.callCode();
    const minutes = Math.max(1, Math.round(expiresS / 60));
    return `Call ${number} and press ${code} on the keypad within ${minutes} minutes. This call then continues there.`;
  }

  /** The server has let go of the conversation: looks why, for the person. */
  async whyLost() {
    return (await this.dropDeleted()) || ELSEWHERE;
  }

  /** Lets go of the conversation if it was deleted, and says so, for the person; empty when it was not. */
  async dropDeleted() {
    const api = this.#api;
    try {
      await api?.info();
    } catch (error) {
      if (error.gone) {
        if (api === this.#api) this.#drop();
        return DELETED;
      }
    }
    return "";
  }

  /** Links to this conversation in writing, and to a new one. */
  showLinks({ busy }) {
    const { text, fresh } = links;
    text.textContent = this.#api ? "Open as text" : "Text only";
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
