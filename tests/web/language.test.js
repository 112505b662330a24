import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { markupOf, openPage, setGlobal } from "./support/page.js";
import { chooseLanguage, dateAndTime, locale, reword, t, translate, wanted, worded } from "../../web/shared/language.js";
import * as adminStrings from "../../web/shared/admin_strings.js";
import * as operatorStrings from "../../web/shared/operator_strings.js";
import { LANGUAGES, STRINGS as SHARED_STRINGS } from "../../web/shared/strings.js";

const SHARED = new URL("../../web/shared/", import.meta.url);
/** The strings of all pages, with those that only the pages of operators load. */
const STRINGS = Object.fromEntries(
  Object.keys(SHARED_STRINGS).map((code) => [code, { ...SHARED_STRINGS[code], ...operatorStrings[code], ...adminStrings[code] }]),
);
// Names that are the same in every language.
const NAMES = new Set(["Parley", "PARLEY_ADMIN_TOKEN", "desk:", "M", "C", "?", "Esc", "–", ...Object.values(LANGUAGES)]);
const ATTRIBUTES = ["aria-label", "title", "placeholder", "alt"];
// Texts for developers: they are thrown where the page itself is wrong, or go to the console.
const DEVELOPERS = /TypeError\(|required\(|console\.|no (latency|loudness) is measured/;

const FOR_MACHINES = new Set([
  "passages.js: chip passages",
  "deadline.js: not within  ms",
  "token.js: Bearer ",
  ...["omni.js: Enter", "session.js: Enter", "desk.js: Enter", "stage.js: Escape", "shortcuts.js: Space", "shortcuts.js: Tab"], // keys
  ...["unit_chart.js", "waveform.js", "call_lanes.js"].map((name) => `${name}: (prefers-color-scheme: dark)`),
  "duplex_socket.js: Queue full", // the server's reason
  "admin_storage.js: dry run", // a job of the server
  "record.js: No, never mind.", // is sent to the server, in its language
]);
/** Pages that are shown in several languages, with their scripts, and the least number of strings in their markup. */
const PAGES = [
  { file: "index.html", script: "talk.js", least: 30 },
  { file: "omni.html", script: "omni.js", least: 40 },
  { file: "session.html", script: "session.js", least: 60 },
  { file: "share.html", script: "share.js", least: 15 },
  { file: "desk.html", script: "desk.js", least: 30 },
  { file: "sessions.html", script: "sessions.js", least: 30 },
  { file: "admin.html", script: "admin.js", least: 90 },
];

function open({ languages, file = "index.html" }) {
  const window = openPage({ file });
  setGlobal("navigator", { languages });
  return window.document;
}

/** Return the modules that a page's script loads, with their text. */
function modulesOf(name, found = new Map()) {
  if (found.has(name)) return found;
  const text = readFileSync(new URL(name, SHARED), "utf8");
  found.set(name, text);
  for (const [, other] of text.matchAll(/from "\.\/([\w.]+)"/g)) modulesOf(other, found);
  return found;
}

/** Return the literals of a module that look like words for a user. */
function wordsIn(text) {
  const code = text
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .split("\n")
    .filter((line) => !DEVELOPERS.test(line))
    .map((line) => line.replace(/(^|\s)\/\/.*$/, ""))
    .join("\n");
  const literals = [...code.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)].map(([, plain, template]) => plain ?? template);
  return literals.map((each) => each.replace(/\$\{[^}]*\}/g, "")).filter((each) => {
    if (/^[A-Z]\w*Error$/.test(each)) return false; // the class of an exception
    return /[A-Za-z]{2,}[,.:]? +[a-z]{2,}/.test(each.replace(/\[[^\]]*\]/g, "")) || /^[A-Z][a-z]+ ?$/.test(each);
  });
}

test("every key is in every language, with the same values", () => {
  const keys = Object.keys(STRINGS.en).sort();
  for (const [code, strings] of Object.entries(STRINGS)) {
    assert.ok(LANGUAGES[code], code);
    assert.deepEqual(Object.keys(strings).sort(), keys, code);
    for (const key of keys) {
      const values = (text) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();
      assert.ok(strings[key].trim(), `${code}.${key}`);
      assert.deepEqual(values(strings[key]), values(STRINGS.en[key]), `${code}.${key}`);
    }
  }
});

for (const { file, least } of PAGES) test(`no text of the markup of ${file} is outside of the table`, () => {
  const page = open({ languages: ["en"], file });
  let count = 0;
  for (const node of page.body.querySelectorAll("*")) {
    const own = [...node.childNodes].filter((each) => each.nodeType === 3).map((each) => each.textContent.trim()).join("");
    if (own && !NAMES.has(own)) {
      assert.equal(own, STRINGS.en[node.getAttribute("data-text")], node.outerHTML.slice(0, 200));
      count += 1;
    }
    const named = Object.fromEntries((node.getAttribute("data-attributes") ?? "").split(" ").map((pair) => pair.split(":")));
    for (const attribute of ATTRIBUTES.filter((each) => node.getAttribute(each))) {
      assert.equal(node.getAttribute(attribute), STRINGS.en[named[attribute]], node.outerHTML.slice(0, 200));
      count += 1;
    }
  }
  assert.ok(count >= least, `${count} strings were found`);
});

for (const { script } of PAGES) test(`no text of ${script} and its modules is outside of the table`, () => {
  const modules = new Map([...modulesOf(script)].filter(([name]) => !name.endsWith("strings.js")));
  assert.ok(modules.size > 9);
  const found = [...modules].flatMap(([name, text]) => wordsIn(text).map((words) => `${name}: ${words}`));
  assert.deepEqual(found.filter((each) => !FOR_MACHINES.has(each)), []);
});

test("such a text is found", () => {
  assert.deepEqual(wordsIn('say("The call has ended."); // "not this one"'), ["The call has ended."]);
  assert.deepEqual(wordsIn("say(`Wait ${count} more seconds`); write(node, \"Ready\");"), ["Wait  more seconds", "Ready"]);
});

test("a key is in one table only", () => {
  const tables = ["strings.js", "omni_strings.js", "session_strings.js", "operator_strings.js", "admin_strings.js"].map((name) => readFileSync(new URL(name, SHARED), "utf8"));
  const keys = tables.flatMap((text) => [...text.slice(0, text.indexOf("const de")).matchAll(/^ {2}(\w+):/gm)].map(([, key]) => key));
  assert.deepEqual(keys.filter((key, at) => keys.indexOf(key) !== at), []);
  assert.equal(keys.length, Object.keys(STRINGS.en).length);
});

test("every string is used", () => {
  const sources = PAGES.flatMap(({ file, script }) => [
    ...[...modulesOf(script)].filter(([name]) => !name.endsWith("strings.js")).map(([, text]) => text),
    markupOf(file),
  ]);
  const all = sources.join("\n");
  const made = /^(state|span|microphone|camera|screen|offer|take|medium|rec_(lane|vote|tool|cut|replay|differs)|desk_(tier|reason|cause)|admin_(circuit|kind|task|reason|status))_/;
  const unused = Object.keys(STRINGS.en).filter((key) => !made.test(key) && !new RegExp(`[":]${key}["\\s]`).test(all));
  assert.deepEqual(unused, []);
});

test("the language is the browser's first known one, in the markup too", () => {
  const page = open({ languages: ["fr-CH", "de-AT", "en-GB"] });
  assert.equal(wanted(), "de");
  translate(page);
  assert.equal(page.documentElement.lang, "de");
  assert.equal(page.querySelector('[data-role="talk-label"]').textContent, "Sprechen");
  assert.equal(page.querySelector('[data-role="send"]').getAttribute("aria-label"), "Senden");
  assert.equal(t("queue", { position: 3, wait: "" }), "Alle Leitungen sind belegt. Sie sind Nummer 3 in der Warteschlange.");
});

test("an unknown language is English", () => {
  open({ languages: ["fr"] });
  assert.equal(wanted(), "en");
});

test("a choice is kept and counts more than the browser", () => {
  const page = open({ languages: ["de"] });
  const list = page.querySelector('[data-role="language"]');
  let changed = 0;
  chooseLanguage(list, () => (changed += 1));
  assert.equal(list.value, "de");
  list.value = "en";
  list.dispatchEvent(new page.defaultView.Event("change"));
  assert.deepEqual([wanted(), changed, page.documentElement.lang], ["en", 1, "en"]);
  assert.equal(globalThis.localStorage.getItem("parley.language"), "en");
});

test("a page that is not translated is English, whatever was chosen", () => {
  open({ languages: ["de"], file: "docs.html" });
  globalThis.localStorage.setItem("parley.language", "de");
  assert.equal(t("you"), "You");
  assert.equal(locale(), undefined);
});

test("times are those of the browser's own locale of the language", () => {
  open({ languages: ["en-US", "de-AT"] });
  assert.equal(locale(), "en-US");
  globalThis.localStorage.setItem("parley.language", "de");
  assert.equal(locale(), "de-AT");
  assert.match(dateAndTime(1_700_000_000_000_000), /^1[45]\. ?11\. ?2023/);
  open({ languages: ["fr"] });
  assert.equal(locale(), "en");
});

test("a change of the language writes anew what scripts wrote, also into what is not on the page yet", () => {
  const page = open({ languages: ["en"] });
  const [shown, later] = ["p", "div"].map((tag) => page.createElement(tag));
  page.body.append(shown);
  worded(shown, () => t("you"));
  later.append(worded(page.createElement("span"), () => t("parley_ended", { time: "0:10" })));
  globalThis.localStorage.setItem("parley.language", "de");
  translate(page);
  assert.deepEqual([shown.textContent, later.textContent], ["Sie", "Parley ended the call after 0:10"]);
  reword(later);
  assert.equal(later.textContent, t("parley_ended", { time: "0:10" }));
});

test("the strings of operators are not loaded by the pages of callers", () => {
  for (const { file, script } of PAGES) {
    const isOperators = ["desk.html", "sessions.html", "admin.html"].includes(file);
    assert.equal(modulesOf(script).has("admin_strings.js"), isOperators, file);
  }
});
