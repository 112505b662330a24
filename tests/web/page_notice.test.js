import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { PageNotice } from "../../web/shared/page_notice.js";

function made() {
  const line = openPage({ file: "index.html" }).document.querySelector('[data-role="notice"]');
  return { line, notice: new PageNotice(line) };
}

test("a device that is found takes back what was said of it", () => {
  const { line, notice } = made();
  notice.sayOfDevice("Headset is not connected.", { bad: true });
  assert.deepEqual([line.hidden, line.textContent], [false, "Headset is not connected."]);
  notice.sayOfDevice("");
  assert.ok(line.hidden);
});

test("a change of the microphone leaves what was said of the call", () => {
  const { line, notice } = made();
  notice.sayOfDevice("Headset is not connected.");
  notice.say("The connection was lost. Trying to go on.");
  notice.sayOfDevice("");
  assert.deepEqual([line.hidden, line.textContent], [false, "The connection was lost. Trying to go on."]);
  notice.say("");
  assert.ok(line.hidden);
});
