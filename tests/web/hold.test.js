// A hold: what the page shows, and what its button requests.

import assert from "node:assert/strict";
import { test } from "node:test";

import { openPage, setGlobal } from "./support/page.js";

openPage({ file: "index.html" });
setGlobal("navigator", { languages: ["en"] });
const { Hold } = await import("../../web/shared/hold.js");

test("only a call that can be paused has the button, which pauses and goes on", () => {
  const page = openPage({ file: "index.html" }).document;
  const part = (role) => page.querySelector(`[data-role="${role}"]`);
  const requests = [];
  const hold = new Hold((isOn) => requests.push(isOn), () => hold.show({ isUp: true }));
  hold.show({ isUp: true });
  assert.ok(part("hold").hidden);
  hold.take({ kind: "hold", is_on: false, most_s: 300 });
  assert.deepEqual([part("hold").hidden, part("hold-switch").textContent, hold.isOn], [false, "Pause", false]);
  part("hold-switch").click();
  hold.take({ kind: "hold", is_on: true, most_s: 300 });
  assert.equal(part("hold-switch").textContent, "Go on");
  assert.equal(part("hold-text").textContent, "On hold for up to 5 minutes. Parley neither hears nor speaks.");
  part("hold-switch").click();
  assert.deepEqual(requests, [true, false]);
  hold.close();
  hold.show({ isUp: false });
  assert.deepEqual([part("hold").hidden, hold.isOn], [true, false]);
});
