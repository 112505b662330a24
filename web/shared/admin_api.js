// Requests of the operator's page to the server. Every request has a deadline and throws ApiError.

import { ApiError, requestJson } from "./session_api.js";

/**
 * @import { App, DocumentList, EstimateSettings, Estimates, Failures, LiveCallList, OperatorState, SettingInForce, Status, Storage,
 *   Ticket, Usage, Voice, VoiceAdded, WorkerView } from "../types/server.js"
 */

const REQUEST_MS = 10_000;
// A file has to arrive, and to be decoded or embedded.
const UPLOAD_MS = 60_000;
const VOICES = "/api/assets/ref_audio";
const DOCUMENTS = "/api/admin/documents";
const USAGE = "/api/admin/usage";
const CALLS = "/api/admin/calls";
const STORAGE = "/api/admin/storage";
const FAILURES = "/api/admin/failures";

export { ApiError };

/**
 * @typedef {object} ServerView the server at one moment
 * @property {Status} status
 * @property {WorkerView[]} workers
 * @property {Ticket[]} queue
 * @property {App[]} apps
 * @property {Estimates} estimates
 * @property {Voice[]} voices
 * @property {DocumentList} library
 * @property {Usage} usage
 * @property {LiveCallList} live
 * @property {Storage} storage
 * @property {Failures} failures
 */

/**
 * Return the token of the address (``#token=...``), as the server prints it when it starts; null without one. The address
 * loses it: it must not be read over a shoulder, or be bookmarked. A fragment is sent to no server.
 *
 * @returns {string | null}
 */
export function offeredToken() {
  const offered = new URLSearchParams(location.hash.slice(1)).get("token");
  if (offered) history.replaceState(null, "", location.pathname + location.search);
  return offered;
}

/** @type {(id: string) => string} */
export const voicePath = (id) => `${VOICES}/${encodeURIComponent(id)}`;

/** @type {() => Promise<OperatorState>} */
export const operator = () => ask("GET", "/api/admin/session");

/** @type {(token: string) => Promise<unknown>} */
export const logIn = (token) => ask("POST", "/api/admin/session", { token });

/** @type {() => Promise<unknown>} */
export const logOut = () => ask("DELETE", "/api/admin/session");

/** @type {(id: string, enabled: boolean) => Promise<App>} */
export const switchApp = (id, enabled) => ask("PUT", `/api/admin/apps/${encodeURIComponent(id)}`, { enabled });

/** @type {(ticket: string) => Promise<{ success: boolean }>} */
export const takeOut = (ticket) => ask("DELETE", `/api/queue/${encodeURIComponent(ticket)}`);

/** @type {(changed: Partial<EstimateSettings>) => Promise<Estimates>} */
export const setEstimates = (changed) => ask("PUT", "/api/config/eta", changed);

/** @type {(id: string) => Promise<unknown>} */
export const endCall = (id) => ask("DELETE", `${CALLS}/${encodeURIComponent(id)}`);

/** @type {(dryRun: boolean) => Promise<unknown>} */
export const runRetention = (dryRun) => ask("POST", `${STORAGE}/retention`, { dry_run: dryRun });

/** @type {() => Promise<SettingInForce[]>} */
export const settingsInForce = async () => (await ask("GET", "/api/admin/settings")).settings;

/** @type {(id: string) => string} */
export const callAudioPath = (id) => `${CALLS}/${encodeURIComponent(id)}/audio.wav`;

/** @type {(id: string) => Promise<unknown>} */
export const removeVoice = (id) => ask("DELETE", voicePath(id));

/** @type {(name: string, dataUrl: string) => Promise<VoiceAdded>} */
export const addVoice = (name, dataUrl) => ask("POST", VOICES, { name, audio_base64: dataUrl }, UPLOAD_MS);

/** @type {(name: string) => string} */
const documentPath = (name) => `${DOCUMENTS}?name=${encodeURIComponent(name)}`;

/** @type {(file: File) => Promise<DocumentList>} */
export const addDocument = (file) =>
  requestJson("PUT", documentPath(file.name), { body: file, signal: AbortSignal.timeout(UPLOAD_MS) });

/** @type {(name: string) => Promise<DocumentList>} */
export const removeDocument = (name) => ask("DELETE", documentPath(name), undefined, UPLOAD_MS);

/** @type {() => Promise<DocumentList>} */
export const readDocuments = () => ask("POST", `${DOCUMENTS}/reading`, undefined, UPLOAD_MS);

/**
 * Read the state of the server.
 *
 * @returns {Promise<ServerView>}
 */
export async function look() {
  const paths = [
    ...["/status", "/workers", "/api/queue", "/api/admin/apps", "/api/config/eta", VOICES, DOCUMENTS, USAGE, CALLS, STORAGE, FAILURES],
  ];
  const [status, workers, queue, apps, estimates, voices, library, usage, live, storage, failures] = await Promise.all(
    paths.map((path) => ask("GET", path)),
  );
  return {
    status,
    workers: workers.workers,
    queue: queue.items,
    apps: apps.apps,
    estimates,
    voices: voices.ref_audios,
    library,
    usage,
    live,
    storage,
    failures,
  };
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {number} [withinMs]
 * @returns {Promise<any>}
 */
function ask(method, path, body, withinMs = REQUEST_MS) {
  /** @type {RequestInit} */
  const options = { signal: AbortSignal.timeout(withinMs) };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  return requestJson(method, path, options);
}
