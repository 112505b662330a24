// What the page is doing, as a table: state -> event -> next state. An event that a state does not list changes nothing
// (messages of a call that has just ended may still arrive).

export const LABELS = {
  ready: "Ready",
  connecting: "Connecting",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
  ended: "Call ended",
  error: "Error",
};

const IN_CALL = { hungUp: "ready", ended: "ended", failed: "error" };

const TRANSITIONS = {
  ready: { start: "connecting" },
  ended: { start: "connecting" },
  error: { start: "connecting" },
  connecting: { up: "listening", ...IN_CALL },
  listening: { thinking: "thinking", botStarted: "speaking", ...IN_CALL },
  thinking: { botStarted: "speaking", quiet: "listening", userStarted: "listening", ...IN_CALL },
  speaking: { botStopped: "listening", thinking: "thinking", userStarted: "listening", ...IN_CALL },
};

export function next(state, event) {
  return TRANSITIONS[state][event] ?? state;
}

export function inCall(state) {
  return state === "listening" || state === "thinking" || state === "speaking";
}
