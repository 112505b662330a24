import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { actionOf, listenForKeys, takesText } from "../../web/shared/shortcuts.js";

function page() {
  const window = openPage({ file: "index.html" });
  const find = (role) => window.document.querySelector(`[data-role="${role}"]`);
  const press = (key, { target = window.document.body, ...more } = {}) => {
    const event = new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
    target.dispatchEvent(event);
    return event;
  };
  return { find, press };
}

test("each key has its action, with and without Shift", () => {
  const { press } = page();
  assert.deepEqual(["m", "M", "c", "?", "x", " "].map((key) => actionOf(press(key))), ["mute", "mute", "camera", "help", null, null]);
});

test("a further key, a repeated key and a word that is being composed are none", () => {
  const { press } = page();
  for (const more of [{ ctrlKey: true }, { altKey: true }, { metaKey: true }, { repeat: true }, { isComposing: true }]) {
    assert.equal(actionOf(press("m", more)), null, JSON.stringify(more));
  }
});

test("a field keeps its characters, and so does a list", () => {
  const { find, press } = page();
  for (const role of ["typed", "language", "choose-microphone"]) {
    assert.ok(takesText(find(role)), role);
    assert.equal(actionOf(press("m", { target: find(role) })), null, role);
  }
  for (const role of ["talk", "gain", "push-to-talk", "file", "conversation"]) assert.ok(!takesText(find(role)), role);
});

test("keys act until they are switched off", () => {
  const { press } = page();
  const acted = [];
  let isOn = true;
  listenForKeys({ mute: () => acted.push("mute"), camera: () => acted.push("camera"), help: () => acted.push("help") }, () => isOn);
  assert.ok(press("m").defaultPrevented);
  press("?");
  isOn = false;
  assert.ok(!press("c").defaultPrevented);
  assert.deepEqual(acted, ["mute", "help"]);
});

test("an open dialog keeps the devices as they are, and the list of keys can be opened over it", () => {
  const { find, press } = page();
  const panel = find("sound-panel");
  panel.showModal();
  assert.deepEqual(["m", "c", "?"].map((key) => actionOf(press(key, { target: find("volume") }))), [null, null, "help"]);
  panel.close();
  assert.deepEqual(["m", "c", "?"].map((key) => actionOf(press(key))), ["mute", "camera", "help"]);
});
