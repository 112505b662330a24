// A page of web/pages/ in happy-dom, with the names that its modules expect of a browser.

import { readFileSync } from "node:fs";
import { Window } from "happy-dom";

const NAMES = ["document", "navigator", "location", "history", "sessionStorage", "localStorage", "ResizeObserver", "Element", "Node"];

/** Set a global name of the browser. Some are getters in newer releases of Node.js. */
export function setGlobal(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
}

/** Return a page of web/pages/ with its parts, as the server sends it (page_files.py). */
export function markupOf(file) {
  const read = (name) => readFileSync(new URL(`../../../web/${name}`, import.meta.url), "utf8");
  return read(`pages/${file}`).replace(/^ *<!-- part: ([\w.-]+) -->\n/gm, (_line, part) => read(`parts/${part}`));
}

/** Open an empty page, or one of web/pages/. Modules that look at the page when they are loaded are imported afterwards. */
export function openPage({ file, address = "http://localhost:7860/" } = {}) {
  const window = new Window({ url: address, width: 1280, height: 800 });
  if (file) {
    // Only the structure: happy-dom must load neither modules nor styles.
    window.document.write(markupOf(file).replace(/<(script|link)\b[^>]*>(<\/script>)?/g, ""));
  }
  const classes = Object.getOwnPropertyNames(window).filter((name) => name.startsWith("HTML"));
  for (const name of [...NAMES, ...classes]) setGlobal(name, window[name]);
  return window;
}

/** Resolve once a condition holds; the runner's timeout ends a wait in vain. */
export async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}
