// State of the talk page, as a table: state -> event -> next state. An event that a state does not list changes nothing
// (messages of a call that has just ended may still arrive).

/** @typedef {"ready" | "connecting" | "reconnecting" | "listening" | "thinking" | "speaking" | "ended" | "error"} State */
/**
 * @typedef {"start" | "up" | "upSpeaking" | "thinking" | "botStarted" | "botStopped" | "userStarted" | "quiet" | "lost" | "hungUp"
 *   | "ended" | "failed"} StateEvent
 */

/**
 * @typedef {object} Hearing whether the bot hears the caller
 * @property {boolean} deaf there is no microphone
 * @property {boolean} isMuted
 * @property {boolean} pushes push to talk
 * @property {boolean} isHeld
 * @property {boolean} playsFile a file is sent in place of the microphone
 */

/** @type {Partial<Record<StateEvent, State>>} */
const OVER = { hungUp: "ready", ended: "ended", failed: "error" };
/** @type {Partial<Record<StateEvent, State>>} */
const IN_CALL = { ...OVER, lost: "reconnecting" };

/** @type {Record<State, Partial<Record<StateEvent, State>>>} */
const TRANSITIONS = {
  ready: { start: "connecting" },
  ended: { start: "connecting" },
  error: { start: "connecting" },
  connecting: { up: "listening", upSpeaking: "speaking", ...OVER },
  reconnecting: { up: "listening", upSpeaking: "speaking", ...OVER },
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
 * Return true while a call is being opened, for the first time or again.
 *
 * @param {State} state
 */
export function isOpening(state) {
  return state === "connecting" || state === "reconnecting";
}

/**
 * Return true while a call is connected.
 *
 * @param {string} state
 */
export function inCall(state) {
  return state === "listening" || state === "thinking" || state === "speaking";
}

/**
 * Return the word for a state: in a call that listens, it says what the bot can hear.
 *
 * @template {string} S
 * @param {S} state of the page of a call, or of full duplex
 * @param {Hearing} hearing
 */
export function wordOf(state, { deaf, isMuted, pushes, isHeld, playsFile }) {
  const holds = pushes && isHeld && !deaf && !playsFile;
  if (holds && inCall(state)) return "on_air";
  if (state !== "listening") return state;
  if (playsFile) return "file";
  if (deaf) return "deaf";
  if (pushes) return "released";
  return isMuted ? "muted" : state;
}
