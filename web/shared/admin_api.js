// What the operator's page asks of the server. Every request has a deadline and throws ApiError.

import { ApiError, request } from "./session_api.js";

const REQUEST_MS = 10_000;
// A voice has to arrive and be decoded.
const UPLOAD_MS = 60_000;
const VOICES = "/api/assets/ref_audio";

export { ApiError };

export const voicePath = (id) => `${VOICES}/${encodeURIComponent(id)}`;

export const operator = () => ask("GET", "/api/admin/session");
export const logIn = (token) => ask("POST", "/api/admin/session", { token });
export const logOut = () => ask("DELETE", "/api/admin/session");

export const switchApp = (id, enabled) => ask("PUT", `/api/admin/apps/${encodeURIComponent(id)}`, { enabled });
export const takeOut = (ticket) => ask("DELETE", `/api/queue/${encodeURIComponent(ticket)}`);
export const setEstimates = (changed) => ask("PUT", "/api/config/eta", changed);
export const removeVoice = (id) => ask("DELETE", voicePath(id));
export const addVoice = (name, dataUrl) => ask("POST", VOICES, { name, audio_base64: dataUrl }, UPLOAD_MS);

/** How everything stands at one moment. */
export async function look() {
  const [status, workers, queue, apps, estimates, voices] = await Promise.all(
    ["/status", "/workers", "/api/queue", "/api/admin/apps", "/api/config/eta", VOICES].map((path) => ask("GET", path)),
  );
  return { status, workers: workers.workers, queue: queue.items, apps: apps.apps, estimates, voices: voices.ref_audios };
}

async function ask(method, path, body, withinMs = REQUEST_MS) {
  const options = { signal: AbortSignal.timeout(withinMs) };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const response = await request(method, path, options);
  return response.json();
}
