// The page that lists sessions: search by words, transport, tag and time; each opens on its own page, with its recordings. For the
// operator, who logs in as on the other pages.

import * as admin from "./admin_api.js";
import { element, part, showNotice, write } from "./element.js";
import { messageOf } from "./guards.js";
import { chooseLanguage, counted, dateAndTime, t, translate } from "./operator_language.js";
import { ApiError, requestJson } from "./session_api.js";
import { transportName } from "./transport_names.js";

/** @import { Key } from "./language.js" */
/** @import { FoundSession, SessionPage } from "../types/server.js" */
/** @typedef {"loading" | "locked" | "live" | "away"} PageState */

/** @type {Record<PageState, Key>} */
const STATES = { loading: "op_loading", locked: "op_locked", live: "op_ready", away: "op_away" };
const DAY_MS = 86_400_000;

const parts = {
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
  locked: part("locked", HTMLElement),
  login: part("login", HTMLFormElement),
  token: part("token", HTMLInputElement),
  tokenEnv: part("token-env", HTMLElement),
  logOut: part("log-out", HTMLButtonElement),
  open: part("open", HTMLElement),
  search: part("search", HTMLFormElement),
  words: part("words", HTMLInputElement),
  transport: part("transport", HTMLSelectElement),
  tag: part("tag", HTMLInputElement),
  since: part("since", HTMLInputElement),
  until: part("until", HTMLInputElement),
  found: part("found", HTMLOListElement),
  none: part("none", HTMLElement),
  more: part("more", HTMLButtonElement),
};

/** Place of the next page of the list that is shown. @type {string | null} */
let next = null;
/** Sessions that are shown. @type {FoundSession[]} */
let found = [];
// An answer to a search before the present one is dropped.
let searches = 0;

/**
 * Read a page of the list and show it after what is there.
 *
 * @param {string | null} before null for the first one
 */
async function read(before) {
  const search = (searches += 1);
  try {
    /** @type {SessionPage} */
    const page = await requestJson("GET", `/api/sessions/search?${query(before)}`);
    if (search !== searches) return;
    show("live");
    showNotice(parts.notice, "");
    if (before === null) found = [];
    found.push(...page.sessions);
    draw();
    next = page.before;
    parts.more.hidden = next === null;
    parts.none.hidden = parts.found.childElementCount > 0;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (search !== searches) return;
    if (error.denied) await lock();
    else fail(error);
  }
}

/** Show what was found, in the language of the page. */
function draw() {
  parts.found.replaceChildren(...found.map(row));
}

/** @param {string | null} before */
function query(before) {
  const given = new URLSearchParams({ text: parts.words.value, transport: parts.transport.value });
  if (parts.tag.value.trim()) given.set("tag", parts.tag.value);
  // Days of this browser, both included.
  const { valueAsDate: since } = parts.since;
  const { valueAsDate: until } = parts.until;
  if (since) given.set("since_us", String(localMs(since) * 1_000));
  if (until) given.set("until_us", String((localMs(until) + DAY_MS) * 1_000));
  if (before !== null) given.set("before", before);
  return given;
}

/**
 * Return the beginning of a day here, of which the browser gives the beginning in UTC.
 *
 * @param {Date} day
 */
function localMs(day) {
  return Math.max(0, new Date(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate()).getTime());
}

/** @param {FoundSession} session */
function row(session) {
  const item = element("li");
  const link = element("a");
  link.href = `/s/${session.id}`;
  const turns = counted(session.turns, "one_turn", "turns");
  link.append(
    element("span", "about", dateAndTime(session.created_us)),
    element("span", "words", session.first_words || t("nothing_said")),
    element("span", "about", [turns, ...session.transports.map(transportName)].join(" · ")),
  );
  if (session.tags.length) {
    const tags = element("span", "chips");
    tags.append(...session.tags.flatMap((tag) => [element("span", "tag-chip", tag), " "]));
    link.append(tags);
  }
  item.append(link);
  return item;
}

/** @param {string} token */
async function logIn(token) {
  try {
    await admin.logIn(token);
    parts.token.value = "";
    await read(null);
  } catch (error) {
    fail(error);
  }
}

async function lock() {
  show("locked");
  parts.token.focus();
  try {
    write(parts.tokenEnv, (await admin.operator()).token_env);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // the page names the usual variable
  }
}

/** @param {unknown} error */
function fail(error) {
  if (error instanceof ApiError && error.status === 0) show("away");
  showNotice(parts.notice, messageOf(error), { bad: true });
}

/** @param {PageState} state */
function show(state) {
  document.body.dataset.state = state;
  write(parts.state, t(STATES[state]));
  parts.locked.hidden = state !== "locked";
  parts.logOut.hidden = state === "locked" || state === "loading";
  parts.open.hidden = state === "locked" || state === "loading";
}

translate(document);
chooseLanguage(part("language", HTMLSelectElement), () => {
  show(/** @type {PageState} */ (document.body.dataset.state));
  draw();
});
parts.login.addEventListener("submit", (event) => {
  event.preventDefault();
  logIn(parts.token.value);
});
parts.logOut.addEventListener("click", async () => {
  await admin.logOut().catch(fail);
  found = [];
  draw();
  await lock();
});
parts.search.addEventListener("submit", (event) => {
  event.preventDefault();
  read(null);
});
parts.more.addEventListener("click", () => read(next));

const offered = admin.offeredToken();
if (offered) await logIn(offered);
if (!offered || document.body.dataset.state === "loading") await read(null);
