// Keys that act on the whole page. Decides which key means what, and when a key belongs to a field in which the user types, or to a
// dialog that covers the page.

/** @typedef {"mute" | "camera" | "help"} Action */

/** Name of a key for assistive technology. */
export const SPACE_KEY = "Space";
/** Key that goes from control to control, as the browser reports it. */
export const TAB_KEY = "Tab";

/** @type {Record<string, Action>} */
const ACTIONS = { m: "mute", c: "camera", "?": "help" };
const WITHOUT_TEXT = ["button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"];

/**
 * Return true for an element that takes the characters that are typed: a list, too, which jumps to the entry that begins with them.
 *
 * @param {EventTarget | null} target
 */
export function takesText(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !WITHOUT_TEXT.includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable === true;
}

/**
 * Return what a key means; null where it means nothing here.
 *
 * @param {KeyboardEvent} event
 */
export function actionOf(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.isComposing || takesText(event.target)) return null;
  const key = event.key.toLowerCase();
  const action = Object.hasOwn(ACTIONS, key) ? ACTIONS[key] : null;
  // A camera or a microphone is not switched where the user cannot see that it is.
  return action !== "help" && document.querySelector("dialog[open]") ? null : action;
}

/**
 * Act on keys.
 *
 * @param {Record<Action, () => void>} act
 * @param {() => boolean} isOn false while the user has switched them off
 */
export function listenForKeys(act, isOn) {
  document.addEventListener("keydown", (event) => {
    const action = isOn() && actionOf(event);
    if (!action) return;
    event.preventDefault();
    act[action]();
  });
}

/**
 * Click a button if the page shows it.
 *
 * @param {HTMLButtonElement} button
 */
export function press(button) {
  if (!button.closest("[hidden]")) button.click();
}
