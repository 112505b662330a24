// Requests of the desk to the server. Every request has a deadline and throws ApiError.

import { ApiError, newKey, request, requestJson } from "./session_api.js";

/** @import { DeskView } from "../types/server.js" */

const REQUEST_MS = 10_000;
const PATH = "/api/desk";
const KEPT = "parley.desk";

export { ApiError };

/** Return the id of this desk: that of the tab, so that a page that is opened again keeps its sessions. */
export function deskId() {
  const kept = sessionStorage.getItem(KEPT);
  if (kept) return kept;
  const made = newKey();
  sessionStorage.setItem(KEPT, made);
  return made;
}

export class DeskApi {
  #desk;

  /** @param {string} desk id of this desk */
  constructor(desk) {
    this.#desk = desk;
  }

  /**
   * Read the sessions; also the desk's sign of life. Throws ApiError.
   *
   * @returns {Promise<DeskView>}
   */
  look() {
    return requestJson("GET", `${PATH}?desk=${encodeURIComponent(this.#desk)}`);
  }

  /**
   * Take a session over. Throws ApiError.
   *
   * @param {string} session
   */
  take(session) {
    return act(session, "take", { desk: this.#desk });
  }

  /**
   * Say something to the caller. Throws ApiError.
   *
   * @param {string} session
   * @param {string} text
   */
  say(session, text) {
    return act(session, "say", { desk: this.#desk, text });
  }

  /**
   * Instruct the model for its next reply. Throws ApiError.
   *
   * @param {string} session
   * @param {string} text
   */
  whisper(session, text) {
    return act(session, "whisper", { text });
  }

  /**
   * Hand the session back to the agent. Throws ApiError.
   *
   * @param {string} session
   * @param {string} note for the model
   */
  handBack(session, note) {
    return act(session, "return", { desk: this.#desk, note });
  }
}

/**
 * @param {string} session
 * @param {"take" | "say" | "whisper" | "return"} what
 * @param {object} body
 */
async function act(session, what, body) {
  await request("POST", `${PATH}/sessions/${session}/${what}`, {
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(REQUEST_MS),
  });
}
