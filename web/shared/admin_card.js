// What the cards of the operator's page share: the actions of the page that they use, and small parts.

import { element, write } from "./element.js";
import { span } from "./lists.js";
import { t } from "./operator_language.js";

/**
 * @typedef {object} CardActions
 * @property {(work: () => unknown) => Promise<void>} run does work, and shows why it failed
 * @property {(text: string, options?: { bad?: boolean }) => void} say shows a notice
 * @property {(title: string, text: string, go: string) => Promise<boolean>} confirmed asks the operator; `go` is the button's label
 * @property {() => Promise<void>} lookAgain reads the state of the server at once
 */

/**
 * @template {"td" | "th"} K
 * @param {K} tag
 * @param {string} className
 * @param {Node} child
 */
export function cell(tag, className, child) {
  const made = element(tag, className);
  made.append(child);
  return made;
}

/**
 * Make the first cell of a row, which names it.
 *
 * @param {string | Node} content
 */
export function rowHead(content) {
  const head = element("th");
  head.append(content);
  head.scope = "row";
  return head;
}

/** @type {(name: string) => string} */
export const words = (name) => name.replaceAll("_", " ");

/**
 * Return the time since then by the clock of this machine, which may differ from the server's: never negative.
 *
 * @type {(at: string | null) => string}
 */
export const since = (at) => (at ? span(Math.max(0, (Date.now() - Date.parse(at)) / 1000)) : "–");

/**
 * Return how long ago that was, in words.
 *
 * @type {(at: string) => string}
 */
export const ago = (at) => t("admin_ago", { time: since(at) });

/** @param {number} bytes */
export function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
}

/**
 * Return a size in the unit that suits it.
 *
 * @param {number} bytes
 */
export function sizeOf(bytes) {
  if (bytes < 1e6) return `${Math.ceil(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}

/**
 * Run work while its button is disabled and says what happens.
 *
 * @template T
 * @param {HTMLButtonElement} button
 * @param {string} label
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function busy(button, label, work) {
  const idle = button.textContent ?? "";
  button.disabled = true;
  write(button, label);
  try {
    return await work();
  } finally {
    button.disabled = false;
    write(button, idle);
  }
}
