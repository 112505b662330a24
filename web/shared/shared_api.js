// Server as seen by a reader with a link. The secret of the link is in the fragment of the address, and goes once into the body of
// a request; the cookie that comes back opens the rest.

import { requestJson } from "./session_api.js";

/** @import { RecordingDetail, RecordingSummary, SessionEvent, TimelinePage } from "../types/server.js" */

export class SharedApi {
  #path;
  /** A link opens no archive, no film and no recording of a client. */
  recordingsZipPath = "";

  /** @param {string} id of the link */
  constructor(id) {
    this.#path = `/api/shared/${id}`;
  }

  /**
   * Open the link. Throws ApiError: 404, it opens nothing; 410, it has ended.
   *
   * @param {string} secret
   * @returns {Promise<{ created_us: number, until_us: number }>}
   */
  open(secret) {
    const headers = { "content-type": "application/json" };
    return requestJson("POST", this.#path, { headers, body: JSON.stringify({ secret }) });
  }

  /**
   * Read all turns, in order of their time. Throws ApiError.
   *
   * @returns {Promise<SessionEvent[]>}
   */
  async transcript() {
    const events = [];
    /** @type {string | null} */
    let after = null;
    do {
      /** @type {TimelinePage} */
      const page = await requestJson("GET", `${this.#path}/transcript${after ? `?after=${after}` : ""}`);
      events.push(...page.events);
      after = page.after;
    } while (after);
    return events;
  }

  /**
   * Read the list of the recorded calls, oldest first. Throws ApiError.
   *
   * @returns {Promise<RecordingSummary[]>}
   */
  async recordings() {
    return (await requestJson("GET", `${this.#path}/recordings`)).calls;
  }

  /**
   * Read the turns and the peaks of a recorded call. Throws ApiError.
   *
   * @param {string} call
   * @returns {Promise<RecordingDetail>}
   */
  recording(call) {
    return requestJson("GET", `${this.#path}/recordings/${call}`);
  }

  /** @param {string} call */
  replayPath(call) {
    return `${this.#path}/recordings/${call}/replay.wav`;
  }

  filmPath() {
    return "";
  }

  clientReplayPath() {
    return "";
  }

  framePath() {
    return "";
  }

  imagePath() {
    return "";
  }
}
