import assert from "node:assert/strict";
import { test } from "node:test";
import { EngineNames } from "../../web/shared/engine_names.js";
import { openPage } from "./support/page.js";

function shown(status) {
  const window = openPage({ file: "index.html" });
  const [list, hint] = ["engines", "floor"].map((role) => window.document.querySelector(`[data-role="${role}"]`));
  const names = new EngineNames(list, hint);
  names.draw();
  assert.equal(list.textContent, "");
  names.show(status);
  return { window, list, hint, names };
}

test("the engines that there are have names, and another language replaces them", () => {
  const { window, list, hint, names } = shown({ stt: "moonshine_tiny", llm: "documents", fallback: "echo", omni: null, deployment: "one" });
  assert.equal(list.textContent.trim(), "recogniser moonshine_tiny answers documents, else echo deployment one");
  assert.ok(hint.hidden);
  window.localStorage.setItem("parley.language", "de");
  names.draw();
  assert.match(list.textContent, /^Spracherkennung moonshine_tiny /);
  assert.equal(list.querySelectorAll("b").length, 3);
});

test("a recogniser of simple English is named as such", () => {
  const { hint } = shown({ stt: "pocketsphinx", deployment: "one" });
  assert.ok(!hint.hidden && hint.textContent);
});
