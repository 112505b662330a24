// The sessions API of the server, for one session. Decides what a failure is called and whether it can be tried again; every
// wait has a deadline.

import { within } from "./deadline.js";
import { authorization, keepNext, signedIn } from "./token.js";

const SESSION_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const REQUEST_MS = 10_000;
// The most that the server gives at once.
const PAGE_EVENTS = 1_000;
// The server gives an answer up after a minute, and the turn of another tab may have to end first.
const SILENT_MS = 130_000;
// Asking again makes no difference: the request itself is not wanted.
const REFUSALS = new Set([400, 401, 403, 413, 422]);

/** Why something was not done, in words for the person. */
export class ApiError extends Error {
  /** @param {number} status of the answer; 0 when there was none */
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }

  /** There is no such session (any more). */
  get gone() {
    return this.status === 404;
  }

  /** It is there, and another client's. */
  get denied() {
    return this.status === 401 || this.status === 403;
  }

  /** The same again would be refused again. */
  get refused() {
    return REFUSALS.has(this.status);
  }
}

/** A key that makes a repeated request harmless. Outside https and localhost browsers have no randomUUID. */
export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class SessionApi {
  #path;

  constructor(id) {
    this.id = id;
    this.#path = `/api/sessions/${id}`;
  }

  /** Whether a text can be the id of a session. */
  static isId(text) {
    return SESSION_ID.test(text ?? "");
  }

  /** A new session on the server. Throws ApiError. */
  static async create() {
    await signedIn();
    const made = await requestJson("POST", "/api/sessions", authorization());
    keepNext(made);
    return new SessionApi(made.id);
  }

  /** A code that goes on with the session in a telephone call, the number to call, and for how long. Throws ApiError. */
  callCode() {
    return requestJson("POST", `${this.#path}/call-code`);
  }

  get exportPath() {
    return `${this.#path}/export`;
  }

  /** Its state; `last_seq` is how many events it has. Throws ApiError. */
  info() {
    return requestJson("GET", this.#path);
  }

  /** Events in order of their time, and the place where the next ones begin (null at the end). Throws ApiError. */
  timeline({ after = null, limit }) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (after) query.set("after", after);
    return requestJson("GET", `${this.#path}/timeline?${query}`);
  }

  /** Every event so far, in order of their time. Throws ApiError. */
  async past() {
    const { last_seq: lastSeq } = await this.info();
    const events = [];
    let after = null;
    do {
      const page = await this.timeline({ after, limit: PAGE_EVENTS });
      events.push(...page.events);
      after = page.after;
    } while (after);
    // What happens while this is read comes live; late or not, its seq is higher.
    return events.filter(({ seq }) => seq <= lastSeq);
  }

  /** The place behind an event. */
  static placeBehind({ event_us: us, seq }) {
    return `${us}.${seq}`;
  }

  /** Every trace of it goes. Throws ApiError. */
  async remove() {
    await request("DELETE", this.#path, { signal: AbortSignal.timeout(REQUEST_MS) });
  }

  /**
   * Says something; yields what comes back as `{ name, data }`. Throws ApiError, also when the answer breaks off.
   *
   * @param {string} text
   * @param {string} key the same one when the same is said again
   * @param {AbortSignal} stop the person wants no more of the answer
   */
  async *say(text, key, stop) {
    const response = await within(
      SILENT_MS,
      request("POST", `${this.#path}/messages`, {
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify({ text }),
        signal: stop,
      }),
    ).catch(asApiError);
    for await (const event of serverSentEvents(response.body)) {
      if (event.name === "error") throw new ApiError(`The server reports: ${event.data.error ?? "an error"}.`);
      yield event;
      if (event.name === "done") return;
    }
    throw new ApiError("The answer broke off.");
  }

  /** Everything that is committed behind `afterSeq`, live. */
  events(afterSeq) {
    return new EventSource(`${this.#path}/events?after_seq=${afterSeq}`);
  }
}

async function* serverSentEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await within(SILENT_MS, reader.read()).catch(asApiError);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have failed already
  }
}

function parsed(block) {
  const fields = Object.fromEntries(
    block.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1).trimStart()];
    }),
  );
  return fields.data === undefined ? null : { name: fields.event ?? "message", data: JSON.parse(fields.data) };
}

async function requestJson(method, path, headers = {}) {
  const response = await request(method, path, { headers, signal: AbortSignal.timeout(REQUEST_MS) });
  return response.json().catch(asApiError);
}

export async function request(method, path, options) {
  await signedIn();
  const response = await fetch(path, { method, ...options }).catch(asApiError);
  if (response.ok) return response;
  const { error, detail } = await response.json().catch(() => ({}));
  const reason = [error, detail].find((text) => typeof text === "string") ?? `the server answered ${response.status}`;
  throw new ApiError(`The server reports: ${reason}.`, response.status);
}

function asApiError(error) {
  if (error instanceof ApiError) throw error;
  throw new ApiError(
    error.name === "TimeoutError" ? "The server does not answer." : "The server cannot be reached.",
  );
}
