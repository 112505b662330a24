// The page of the server's routes: what ``/openapi.json`` says, by section, with a filter.

import { operationsOf, withoutReferences } from "./api_routes.js";
import { element, part, showNotice, write } from "./element.js";
import { messageOf } from "./guards.js";
import { requestJson } from "./session_api.js";

/** @import { ApiDescription, ApiOperation } from "./api_routes.js" */

const parts = {
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
  about: part("about", HTMLElement),
  search: part("search", HTMLFormElement),
  words: part("words", HTMLInputElement),
  routes: part("routes", HTMLElement),
  none: part("none", HTMLElement),
};

/**
 * Show the routes of each section.
 *
 * @param {ApiDescription} description
 */
function show(description) {
  const operations = operationsOf(description);
  parts.about.textContent = description.info.summary ?? "";
  for (const section of new Set(operations.map((each) => each.section))) {
    const group = element("section");
    group.append(element("h3", "", section));
    for (const operation of operations.filter((each) => each.section === section)) group.append(row(operation, description));
    parts.routes.append(group);
  }
}

/**
 * @param {ApiOperation} operation
 * @param {ApiDescription} description
 */
function row(operation, description) {
  const details = element("details");
  details.dataset.words = `${operation.method} ${operation.path} ${operation.summary}`.toLowerCase();
  const summary = element("summary");
  summary.append(
    element("code", "method", operation.method),
    element("code", "", operation.path),
    element("span", "says", operation.summary),
    element("span", "who", operation.audience),
  );
  details.append(summary);
  // Made when it is opened: there are a hundred.
  details.addEventListener("toggle", () => fill(details, operation, description), { once: true });
  return details;
}

/**
 * @param {HTMLElement} details
 * @param {ApiOperation} operation
 * @param {ApiDescription} description
 */
function fill(details, operation, description) {
  if (operation.text !== operation.summary) details.append(element("p", "says", operation.text));
  for (const [title, value] of operation.parts) {
    details.append(element("h4", "", title));
    details.append(element("pre", "", JSON.stringify(withoutReferences(value, description), null, 2)));
  }
}

function filter() {
  const words = parts.words.value.trim().toLowerCase();
  let shown = 0;
  for (const group of parts.routes.querySelectorAll("section")) {
    let left = 0;
    for (const each of group.querySelectorAll("details")) {
      each.hidden = !(each.dataset.words ?? "").includes(words);
      left += Number(!each.hidden);
    }
    group.hidden = left === 0;
    shown += left;
  }
  parts.none.hidden = shown > 0;
}

parts.search.addEventListener("submit", (event) => event.preventDefault());
parts.words.addEventListener("input", filter);
requestJson("GET", "/openapi.json").then(
  (description) => {
    show(description);
    document.body.dataset.state = "live";
    write(parts.state, "Ready");
  },
  (error) => {
    document.body.dataset.state = "away";
    write(parts.state, "Server unreachable");
    showNotice(parts.notice, messageOf(error));
  },
);
