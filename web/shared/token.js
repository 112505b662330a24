// The token with which this page may begin a conversation, where the server asks for one: whoever opens the page for a
// person puts it behind the address (#token=...), which no server is sent and no log keeps. Each is good for one beginning;
// the answer brings the next one.

const KEY = "parley.token";
const REQUEST_MS = 10_000;

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
  // It is nobody's to read over a shoulder, or to bookmark.
  history.replaceState(null, "", location.pathname + location.search);
}

/** Resolves once the server knows the token that this page was opened with, if there is one. */
export async function signedIn() {
  fromAddress();
  await signing;
}

/** Headers for a request that begins a conversation. */
export function authorization() {
  fromAddress();
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** The token as a subprotocol of a WebSocket, which has no headers here. */
export function subprotocols() {
  fromAddress();
  const token = sessionStorage.getItem(KEY);
  // A browser takes no socket that selects none of what it offers, and what carries the token is never sent back.
  return token ? ["parley", `parley.token.${token}`] : [];
}

/** Keeps the token for the next beginning, where an answer has one; what was used is forgotten. */
export function keepNext(answer) {
  if (answer.next_token) sessionStorage.setItem(KEY, answer.next_token);
  else sessionStorage.removeItem(KEY);
}
