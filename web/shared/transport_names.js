// Names of transports for people; the records of a session have those of the registry.

import { t } from "./language.js";

/** @import { Key } from "./language.js" */

/** @type {Record<string, Key>} */
const NAMES = {
  webrtc: "by_browser",
  phone: "by_phone",
  twilio_relay: "by_phone_text",
  websocket: "by_program",
  duplex_ws: "page_omni",
  realtime_ws: "by_program",
  half_duplex: "by_program",
  openai: "by_program",
  unmute: "by_program",
  text: "by_text",
  file: "by_file",
  local: "by_machine",
};

/**
 * Return the name of a transport for people.
 *
 * @param {string} transport as it is recorded
 */
export function transportName(transport) {
  return Object.hasOwn(NAMES, transport) ? t(NAMES[transport]) : transport;
}
