// Language of a page that is marked as translated (data-translated of its root): the one chosen with its switch, else the browser's
// first known one, else English. Other pages are English. Changes the strings of the markup, and gives scripts theirs.

import { LANGUAGES, STRINGS } from "./strings.js";

/** @typedef {keyof typeof STRINGS} Language */
/** @typedef {typeof import("./admin_strings.js").en & typeof import("./operator_strings.js").en} OperatorStrings */
/** @typedef {keyof typeof STRINGS.en | keyof OperatorStrings} Key */
/** @typedef {Record<string, string>} Table */

const CHOSEN = "parley.language";
/** Tables of all pages, and those that the scripts of this page have added. @type {Record<Language, Table>} */
const tables = { en: { ...STRINGS.en }, de: { ...STRINGS.de } };
/** Words of nodes that scripts have written, to be written again in another language. @type {WeakMap<Node, () => string>} */
const written = new WeakMap();

/**
 * Add strings that few pages need, and the others do not load.
 *
 * @param {Record<Language, Table>} more
 */
export function addStrings(more) {
  for (const code of /** @type {Language[]} */ (Object.keys(tables))) Object.assign(tables[code], more[code]);
}

/**
 * @param {string | null | undefined} code
 * @returns {code is Language}
 */
function isKnown(code) {
  return code !== null && code !== undefined && Object.hasOwn(LANGUAGES, code);
}

/** Return the language in which this page is to be shown. */
export function wanted() {
  if (document.documentElement.dataset.translated === undefined) return "en";
  const chosen = localStorage.getItem(CHOSEN);
  if (isKnown(chosen)) return chosen;
  const codes = navigator.languages.map((each) => each.toLowerCase().split("-")[0]);
  return codes.find(isKnown) ?? "en";
}

/** Return the locale of times: the browser's own one of the page's language, if it has one. */
export function locale() {
  if (document.documentElement.dataset.translated === undefined) return undefined;
  const code = wanted();
  return navigator.languages.find((each) => each.toLowerCase().split("-")[0] === code) ?? code;
}

/**
 * Return a date with its time.
 *
 * @param {number} us of Unix time
 * @param {"medium" | "long"} [style] of the date
 */
export function dateAndTime(us, style = "medium") {
  return new Date(us / 1_000).toLocaleString(locale(), { dateStyle: style, timeStyle: "short" });
}

/**
 * Return a string in the language of the page.
 *
 * @param {Key} key
 * @param {Record<string, string | number>} [values] for its {names}
 */
export function t(key, values = {}) {
  const text = tables[wanted()][key];
  return text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/**
 * Return a string whose key comes from data, or the fallback where there is no such string.
 *
 * @param {string} key
 * @param {string} fallback
 */
export function tIfKnown(key, fallback) {
  return Object.hasOwn(tables.en, key) ? t(/** @type {Key} */ (key)) : fallback;
}

/**
 * Write words into an element that stays on the page: a change of the language writes them again. Returns the element.
 *
 * @template {HTMLElement} E
 * @param {E} node
 * @param {() => string} words
 */
export function worded(node, words) {
  node.textContent = words();
  node.dataset.worded = "";
  written.set(node, words);
  return node;
}

/**
 * Write what `worded` has written below a node again, in the language of the page.
 *
 * @param {ParentNode} root
 */
export function reword(root) {
  for (const node of root.querySelectorAll("[data-worded]")) {
    const words = written.get(node)?.();
    if (words !== undefined && node.textContent !== words) node.textContent = words;
  }
}

/**
 * Write the strings of the markup, and of `worded`: `data-text` names that of an element, `data-attributes` those of its attributes, as in
 * "aria-label:talk title:hint".
 *
 * @param {Document} page
 */
export function translate(page) {
  page.documentElement.lang = wanted();
  for (const node of page.querySelectorAll("[data-text]")) {
    node.textContent = t(/** @type {Key} */ (node.getAttribute("data-text")));
  }
  reword(page);
  for (const node of page.querySelectorAll("[data-attributes]")) {
    for (const pair of (node.getAttribute("data-attributes") ?? "").split(" ")) {
      const [attribute, key] = pair.split(":");
      node.setAttribute(attribute, t(/** @type {Key} */ (key)));
    }
  }
}

/**
 * Let the user choose; the choice is kept in this browser.
 *
 * @param {HTMLSelectElement} list of the languages
 * @param {() => void} changed writes what scripts have written
 */
export function chooseLanguage(list, changed) {
  list.value = wanted();
  list.addEventListener("change", () => {
    localStorage.setItem(CHOSEN, list.value);
    translate(document);
    changed();
  });
}
