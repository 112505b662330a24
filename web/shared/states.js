// State of the talk page, as a table: state -> event -> next state. An event that a state does not list changes nothing
// (messages of a call that has just ended may still arrive).

/** @typedef {"ready" | "connecting" | "listening" | "thinking" | "speaking" | "ended" | "error"} State */
/**
 * @typedef {"start" | "up" | "thinking" | "botStarted" | "botStopped" | "userStarted" | "quiet" | "hungUp" | "ended"
 *   | "failed"} StateEvent
 */

/** @type {Partial<Record<StateEvent, State>>} */
const IN_CALL = { hungUp: "ready", ended: "ended", failed: "error" };

/** @type {Record<State, Partial<Record<StateEvent, State>>>} */
const TRANSITIONS = {
  ready: { start: "connecting" },
  ended: { start: "connecting" },
  error: { start: "connecting" },
  connecting: { up: "listening", ...IN_CALL },
  listening: { thinking: "thinking", botStarted: "speaking", ...IN_CALL },
  thinking: { botStarted: "speaking", quiet: "listening", userStarted: "listening", ...IN_CALL },
  speaking: { botStopped: "listening", thinking: "thinking", userStarted: "listening", ...IN_CALL },
};

/**
 * Return the state after an event.
 *
 * @param {State} state
 * @param {StateEvent} event
 */
export function next(state, event) {
  return TRANSITIONS[state][event] ?? state;
}

/**
 * Return true while a call is connected.
 *
 * @param {State} state
 */
export function inCall(state) {
  return state === "listening" || state === "thinking" || state === "speaking";
}
