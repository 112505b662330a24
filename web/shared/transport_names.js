// Names of transports for people; the records of a session have those of the registry.

/** @type {Record<string, string>} */
const NAMES = {
  webrtc: "browser",
  phone: "phone",
  twilio_relay: "phone, as text",
  websocket: "program",
  text: "text",
  file: "file",
  local: "this machine",
};

/**
 * Return the name of a transport for people.
 *
 * @param {string} transport as it is recorded
 */
export function transportName(transport) {
  return NAMES[transport] ?? transport;
}
