// What the server refuses or reports in a full-duplex conversation, in words with the next step. What is not known here is shown in the
// server's own words.

import { t } from "./language.js";
import { authorization } from "./token.js";

/** @import { EndReason, ServerError } from "./duplex_socket.js" */
/** @import { Key } from "./language.js" */

const LOOK_MS = 5_000;

/** @type {Record<string, Key>} by the code of the end */
const ENDS = {
  silent: "end_silent",
  late: "end_late",
  lost: "end_lost",
  queue_full: "end_queue_full",
  no_worker: "end_no_worker",
  service_unavailable: "end_no_worker",
  cancelled: "end_cancelled",
  withdrawn: "end_cancelled",
  stopping: "end_stopping",
  server_shutdown: "end_stopping",
  timeout: "end_timeout",
};
/** @type {Record<string, Key>} by the field that is wrong */
const FIELDS = {
  ref_audio_base64: "error_voice",
  tts_ref_audio_base64: "error_voice",
  system_prompt: "error_prompt",
  frame_base64_list: "error_picture",
};

/**
 * Return why a conversation is over, for the user.
 *
 * @param {EndReason} reason
 */
export function endWords({ code, text }) {
  const key = Object.hasOwn(ENDS, code) ? ENDS[code] : "end_other";
  return t(key, { why: text || code });
}

/**
 * Return what the server reports of a conversation that goes on, for the user.
 *
 * @param {ServerError} error
 */
export function errorWords({ code, text, param }) {
  if (code === "inference_error") return t("error_engine");
  return t(Object.hasOwn(FIELDS, param) ? FIELDS[param] : "error_other", { why: text });
}

/**
 * Find out why a conversation did not begin: a browser gives a page no reason for a refused socket. Return it for the user.
 *
 * @param {"omni" | "audio_duplex"} app
 */
export async function whyRefused(app) {
  const signal = AbortSignal.timeout(LOOK_MS);
  try {
    const { apps } = await (await fetch("/api/apps", { signal })).json();
    if (!apps.some((/** @type {{ app_id: string }} */ each) => each.app_id === app)) return t("refused_switched_off");
    const known = await fetch("/api/client", { method: "POST", headers: authorization(), signal });
    if (known.status === 401 || known.status === 403) return t("may_not_begin", { login: "/admin" });
    return t((await fetch("/ready", { signal })).ok ? "refused_busy" : "refused_not_ready");
  } catch {
    return t("refused_away");
  }
}
