// Sessions API of the server, for one session. Decides what a failure is called and whether it can be tried again; every wait
// has a deadline.

import { within } from "./deadline.js";
import { nameOf } from "./guards.js";
import { t } from "./language.js";
import { authorization, keepNext, signedIn } from "./token.js";

/** @import { AnswerEvent, Attached, CallCode, CallReplay, NextToken, RecordingSummary, RecordingDetail, SessionComment, SessionEvent, SessionInfo, ShareLink, TimelinePage } from "../types/server.js" */

const SESSION_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const REQUEST_MS = 10_000;
// The most that the server gives at once.
const PAGE_EVENTS = 1_000;
// The server abandons an answer after a minute, and the turn of another tab may have to end first.
const SILENT_MS = 130_000;
// The same request would be refused again.
const REFUSALS = new Set([400, 401, 403, 413, 422]);

/** Failure of a request, in words for the user. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} [status] of the answer; 0 when there was none
   */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }

  /** There is no such session (any more). */
  get gone() {
    return this.status === 404;
  }

  /** It exists and belongs to another client. */
  get denied() {
    return this.status === 401 || this.status === 403;
  }

  /** The same again would be refused again. */
  get refused() {
    return REFUSALS.has(this.status);
  }
}

/** Make a key that makes a repeated request harmless. Outside https and localhost browsers have no randomUUID. */
export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class SessionApi {
  #path;

  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.#path = `/api/sessions/${id}`;
  }

  /**
   * Return true if a text can be the id of a session.
   *
   * @param {string | null | undefined} text
   */
  static isId(text) {
    return SESSION_ID.test(text ?? "");
  }

  /** Begin a session on the server. Throws ApiError. */
  static async create() {
    await signedIn();
    /** @type {SessionInfo & NextToken} */
    const made = await requestJson("POST", "/api/sessions", { headers: authorization() }).catch((error) => {
      // The server's own reason is for clients that are programs.
      throw error instanceof ApiError && error.status === 401 ? new ApiError(t("may_not_chat"), 401) : error;
    });
    keepNext(made);
    return new SessionApi(made.id);
  }

  /**
   * Request a code that continues the session in a telephone call. Throws ApiError.
   *
   * @returns {Promise<CallCode>}
   */
  callCode() {
    return requestJson("POST", `${this.#path}/call-code`);
  }

  get exportPath() {
    return `${this.#path}/export`;
  }

  get recordingsZipPath() {
    return `${this.#path}/recordings.zip`;
  }

  /** @param {string} call */
  replayPath(call) {
    return `${this.#path}/recordings/${call}/replay.wav`;
  }

  /** @param {string} call */
  filmPath(call) {
    return `${this.#path}/recordings/${call}/replay.mp4`;
  }

  /** @param {string} call */
  clientReplayPath(call) {
    return `${this.#path}/recordings/${call}/client-replay`;
  }

  /**
   * @param {string} call
   * @param {number} at_ms
   */
  framePath(call, at_ms) {
    return `${this.#path}/recordings/${call}/frames/${at_ms}.jpg`;
  }

  /**
   * @param {string} call
   * @param {string} name
   */
  imagePath(call, name) {
    return `${this.#path}/recordings/${call}/images/${name}`;
  }

  /** @param {string} call */
  replayPagePath(call) {
    return `${this.#path}/recordings/${call}/replays/page`;
  }

  /**
   * Read the state of the replay of a recorded call; for the operator. Throws ApiError.
   *
   * @param {string} call
   * @returns {Promise<CallReplay>}
   */
  replay(call) {
    return requestJson("GET", `${this.#path}/recordings/${call}/replays`);
  }

  /**
   * Hold a recorded call again with the configuration of the server; for the operator. Throws ApiError.
   *
   * @param {string} call
   * @returns {Promise<CallReplay>}
   */
  beginReplay(call) {
    return requestJson("POST", `${this.#path}/recordings/${call}/replays`);
  }

  /**
   * Cancel the replay of a recorded call; for the operator. Throws ApiError.
   *
   * @param {string} call
   */
  async cancelReplay(call) {
    await request("DELETE", `${this.#path}/recordings/${call}/replays`, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Read the list of its recorded calls, oldest first. Throws ApiError.
   *
   * @returns {Promise<RecordingSummary[]>}
   */
  async recordings() {
    return (await requestJson("GET", `${this.#path}/recordings`)).calls;
  }

  /**
   * Read the list with the server's time at the answer, in milliseconds. Throws ApiError.
   *
   * @returns {Promise<{ calls: RecordingSummary[], nowMs: number }>}
   */
  async recordingsNow() {
    const response = await request("GET", `${this.#path}/recordings`, { signal: AbortSignal.timeout(REQUEST_MS) });
    const { calls } = await response.json().catch(asApiError);
    const at = Date.parse(response.headers.get("date") ?? "");
    return { calls, nowMs: Number.isNaN(at) ? Date.now() : at };
  }

  /**
   * Read the events and the peaks of a recorded call. Throws ApiError.
   *
   * @param {string} call
   * @returns {Promise<RecordingDetail>}
   */
  recording(call) {
    return requestJson("GET", `${this.#path}/recordings/${call}`);
  }

  /**
   * Read the comments of its readers, in order of the time that they are about. Throws ApiError.
   *
   * @returns {Promise<SessionComment[]>}
   */
  async comments() {
    return (await requestJson("GET", `${this.#path}/comments`)).comments;
  }

  /**
   * Add a comment at a time of the session. Throws ApiError.
   *
   * @param {{ at_us: number, text: string, name: string }} comment
   * @returns {Promise<SessionComment>}
   */
  comment(comment) {
    return requestJson("POST", `${this.#path}/comments`, jsonOf(comment));
  }

  /**
   * Delete a comment. Throws ApiError.
   *
   * @param {string} comment its id
   */
  async removeComment(comment) {
    await request("DELETE", `${this.#path}/comments/${comment}`, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Add a tag; return all of them. Throws ApiError, also for who is no operator.
   *
   * @param {string} tag
   * @returns {Promise<string[]>}
   */
  async addTag(tag) {
    return (await requestJson("POST", `${this.#path}/tags`, jsonOf({ tag }))).tags;
  }

  /**
   * Remove a tag; return those that are left. Throws ApiError.
   *
   * @param {string} tag
   * @returns {Promise<string[]>}
   */
  async removeTag(tag) {
    return (await requestJson("DELETE", `${this.#path}/tags?${new URLSearchParams({ tag })}`)).tags;
  }

  /**
   * Return whether its recordings are pinned. Throws ApiError.
   *
   * @returns {Promise<boolean>}
   */
  async isPinned() {
    return (await requestJson("GET", `${this.#path}/pin`)).is_pinned;
  }

  /**
   * Pin its recordings, or unpin them. Throws ApiError.
   *
   * @param {boolean} isPinned
   */
  async pin(isPinned) {
    await request(isPinned ? "PUT" : "DELETE", `${this.#path}/pin`, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Read the links to it, newest first. Throws ApiError.
   *
   * @returns {Promise<ShareLink[]>}
   */
  async shares() {
    return (await requestJson("GET", `${this.#path}/shares`)).shares;
  }

  /**
   * Make a link to it; the answer alone has its secret. Throws ApiError.
   *
   * @param {number} expires_s
   * @returns {Promise<ShareLink & { path: string }>}
   */
  share(expires_s) {
    return requestJson("POST", `${this.#path}/shares`, jsonOf({ expires_s }));
  }

  /**
   * Revoke a link. Throws ApiError.
   *
   * @param {string} share its id
   */
  async revokeShare(share) {
    await request("DELETE", `${this.#path}/shares/${share}`, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Read its state. Throws ApiError.
   *
   * @returns {Promise<SessionInfo>}
   */
  info() {
    return requestJson("GET", this.#path);
  }

  /**
   * Read a page of events in order of their time. Throws ApiError.
   *
   * @param {{ after?: string | null, limit: number }} options
   * @returns {Promise<TimelinePage>}
   */
  timeline({ after = null, limit }) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (after) query.set("after", after);
    return requestJson("GET", `${this.#path}/timeline?${query}`);
  }

  /** Read all events so far, in order of their time. Throws ApiError. */
  async past() {
    const { last_seq: lastSeq } = await this.info();
    /** @type {SessionEvent[]} */
    const events = [];
    /** @type {string | null} */
    let after = null;
    do {
      /** @type {TimelinePage} */
      const page = await this.timeline({ after, limit: PAGE_EVENTS });
      events.push(...page.events);
      after = page.after;
    } while (after);
    // Events that are committed while this is read arrive live: their seq is higher.
    return events.filter(({ seq }) => seq <= lastSeq);
  }

  /**
   * Return the place after an event.
   *
   * @param {Pick<SessionEvent, "event_us" | "seq">} event
   */
  static placeBehind({ event_us: us, seq }) {
    return `${us}.${seq}`;
  }

  /** Delete it completely. Throws ApiError. */
  async remove() {
    await request("DELETE", this.#path, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Send a typed turn; yield the events of its answer. Throws ApiError, also when the answer breaks off.
   *
   * @param {string} text
   * @param {string} key the same one for a repeated request
   * @param {AbortSignal} stop ends the answer for the user
   * @param {Attached[]} [pictures]
   * @returns {AsyncGenerator<AnswerEvent>}
   */
  async *say(text, key, stop, pictures = []) {
    const response = await within(
      SILENT_MS,
      request("POST", `${this.#path}/messages`, {
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify(pictures.length ? { text, pictures: pictures.map(sent) } : { text }),
        signal: stop,
      }),
    ).catch(asApiError);
    for await (const event of serverSentEvents(response.body)) {
      if (event.name === "error") throw new ApiError(`${t("server_reports", { why: event.data.error ?? t("an_error") })}.`);
      yield /** @type {AnswerEvent} */ (event);
      // Held: a human has the session, whose words come as events of their own.
      if (event.name === "done" || event.name === "held") return;
    }
    throw new ApiError(t("answer_broke_off"));
  }

  /**
   * Open the stream of everything that is committed after `afterSeq`.
   *
   * @param {number} afterSeq
   */
  events(afterSeq) {
    return new EventSource(`${this.#path}/events?after_seq=${afterSeq}`);
  }
}

/**
 * @param {object} body
 * @returns {RequestInit}
 */
function jsonOf(body) {
  return { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

/** @param {Attached} picture */
function sent({ media_type, data }) {
  return { media_type, data };
}

/** @typedef {{ name: string, data: any }} ServerSentEvent */

/**
 * @param {ReadableStream<Uint8Array<ArrayBuffer>> | null} body
 * @returns {AsyncGenerator<ServerSentEvent>}
 */
async function* serverSentEvents(body) {
  if (!body) return;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await within(SILENT_MS, reader.read()).catch(asApiError);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have failed already
  }
}

/**
 * @param {string} block
 * @returns {ServerSentEvent | null}
 */
function parsed(block) {
  const fields = Object.fromEntries(
    block.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1).trimStart()];
    }),
  );
  return fields.data === undefined ? null : { name: fields.event ?? "message", data: JSON.parse(fields.data) };
}

/**
 * Send a request to the server and return its answer. Throws ApiError.
 *
 * @param {string} method
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
export async function requestJson(method, path, options = {}) {
  const response = await request(method, path, { signal: AbortSignal.timeout(REQUEST_MS), ...options });
  return response.json().catch(asApiError);
}

/**
 * Send a request to the server and return its response. Throws ApiError.
 *
 * @param {string} method
 * @param {string} path
 * @param {RequestInit} options
 */
export async function request(method, path, options) {
  await signedIn();
  const response = await fetch(path, { method, ...options }).catch(asApiError);
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  // A proxy may refuse in a form of its own.
  const reason = typeof error === "string" ? error : t("server_answered", { status: response.status });
  throw new ApiError(`${t("server_reports", { why: reason })}.`, response.status);
}

/**
 * @param {unknown} error
 * @returns {never}
 */
function asApiError(error) {
  if (error instanceof ApiError) throw error;
  throw new ApiError(
    t(nameOf(error) === "TimeoutError" ? "server_silent" : "server_away"),
  );
}
