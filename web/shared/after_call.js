// Line below a call that is over: the way to its conversation, and to its recording where one was made and this browser may read
// it. A recording is made a moment after the end of its call: the line waits for it, a bounded number of looks.

import { element, part } from "./element.js";
import { t } from "./language.js";
import { ApiError, SessionApi } from "./session_api.js";

/** @import { RecordingSummary } from "../types/server.js" */

const LOOKS = 10;
const LOOK_MS = 1_500;
// A recording begins when the call leaves the queue, before the page hears that the bot is ready; the two clocks are the server's.
const BEFORE_MS = 30_000;

/**
 * Return the newest recording of a call that began at a time, in milliseconds of the server's clock.
 *
 * @param {RecordingSummary[]} calls oldest first
 * @param {number} beganMs
 */
export function recordingOf(calls, beganMs) {
  const last = calls.at(-1);
  return last && last.began_us / 1_000 >= beganMs - BEFORE_MS ? last : undefined;
}

export class AfterCall {
  #root;
  #conversation;
  #recording;
  /** @type {SessionApi | null} of the conversation that is shown */
  #api = null;
  /** @type {RecordingSummary | undefined} */
  #found;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#conversation = part("after-conversation", HTMLAnchorElement, root);
    this.#recording = part("after-recording", HTMLElement, root);
  }

  /**
   * Show the links of a call that is over.
   *
   * @param {string | null} session its conversation; null: it has none
   * @param {number} lengthMs
   */
  begin(session, lengthMs) {
    this.hide();
    if (session === null) return;
    this.#api = new SessionApi(session);
    this.show();
    this.#look(this.#api, performance.now() - lengthMs, LOOKS);
  }

  /** Remove the links: another call begins. */
  hide() {
    clearTimeout(this.#timer);
    this.#api = null;
    this.#found = undefined;
    this.show();
  }

  /** Show what is known, in the language of the page. */
  show() {
    const [api, found] = [this.#api, this.#found];
    this.#root.hidden = !api;
    this.#recording.hidden = !found;
    if (!api) return;
    this.#conversation.href = `/s/${api.id}`;
    if (found) this.#recording.replaceChildren(`${t("recording")}: `, ...linksTo(api, found));
  }

  /**
   * @param {SessionApi} api
   * @param {number} beganAt of the call, by this page's clock
   * @param {number} looks that are left
   */
  async #look(api, beganAt, looks) {
    let found;
    try {
      const { calls, nowMs } = await api.recordingsNow();
      found = recordingOf(calls, nowMs - (performance.now() - beganAt));
    } catch (error) {
      // Who may not read the recordings, or cannot reach the server, sees no link to them.
      if (!(error instanceof ApiError)) throw error;
      return;
    }
    if (api !== this.#api || !found || found.problem) return;
    this.#found = found;
    this.show();
    if (!found.has_replay && looks > 1) {
      this.#timer = setTimeout(() => this.#look(api, beganAt, looks - 1), LOOK_MS);
    }
  }
}

/**
 * @param {SessionApi} api
 * @param {RecordingSummary} call
 */
function linksTo(api, call) {
  if (!call.has_replay) return [t("recording_made")];
  const download = link(t("download"), api.replayPath(call.call_id));
  download.download = `${call.call_id}.wav`;
  const play = link(t("play"), `/s/${api.id}#recordings`);
  return [play, ", ", download, ", ", link(t("share"), `/s/${api.id}#share`)];
}

/**
 * @param {string} text
 * @param {string} href
 */
function link(text, href) {
  const made = element("a", "", text);
  made.href = href;
  return made;
}
