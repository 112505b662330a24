// The token with which this page may begin a conversation, where the server requires one. The page that links here puts it
// into the fragment of the address (#token=...), which is sent to no server and appears in no log. A token begins one
// conversation; the answer brings the next one.

/** @import { NextToken } from "../types/server.js" */

const KEY = "parley.token";
const REQUEST_MS = 10_000;

/** @type {Promise<unknown> | null} */
let signing = null;

function fromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  sessionStorage.setItem(KEY, found);
  // A cookie for what carries no headers: event streams, links. Without it they are refused, and say why.
  signing = fetch("/api/client", {
    method: "POST",
    headers: { authorization: `Bearer ${found}` },
    signal: AbortSignal.timeout(REQUEST_MS),
  }).catch(() => {});
  // It must not be read over a shoulder, or be bookmarked.
  history.replaceState(null, "", location.pathname + location.search);
}

/** Resolve once the server has received the token that this page was opened with, if there is one. */
export async function signedIn() {
  fromAddress();
  await signing;
}

/**
 * Return the headers of a request that begins a conversation.
 *
 * @returns {Record<string, string>}
 */
export function authorization() {
  fromAddress();
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Return the token as a subprotocol of a WebSocket, which has no headers in a browser. */
export function subprotocols() {
  fromAddress();
  const token = sessionStorage.getItem(KEY);
  // A browser refuses a socket that selects none of the offered names, and the one with the token is never sent back.
  return token ? ["parley", `parley.token.${token}`] : [];
}

/**
 * Keep the token for the next conversation, where an answer has one; the used one is forgotten.
 *
 * @param {NextToken} answer
 */
export function keepNext(answer) {
  if (answer.next_token) sessionStorage.setItem(KEY, answer.next_token);
  else sessionStorage.removeItem(KEY);
}
