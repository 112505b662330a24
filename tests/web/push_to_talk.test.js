import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { PushToTalk } from "../../web/shared/push_to_talk.js";

function made({ isOn = true } = {}) {
  const window = openPage({ file: "index.html" });
  setGlobal("window", window);
  const find = (role) => window.document.querySelector(`[data-role="${role}"]`);
  const button = find("microphone");
  button.disabled = false;
  button.setPointerCapture = () => {};
  const call = { ready: true };
  const changes = [];
  const push = new PushToTalk(button, { isOn, isReady: () => call.ready, changed: () => changes.push(push.held) });
  const key = (type, { target = window.document.body, key: name = " ", ...more } = {}) => {
    const event = new window.KeyboardEvent(type, { key: name, bubbles: true, cancelable: true, ...more });
    target.dispatchEvent(event);
    return event.defaultPrevented;
  };
  const point = (type) => button.dispatchEvent(new window.PointerEvent(type, { bubbles: true, button: 0, pointerId: 1 }));
  return { window, find, button, call, changes, push, key, point };
}

test("Space holds and releases, and neither scrolls nor presses anything", () => {
  const { changes, key } = made();
  assert.ok(key("keydown"));
  assert.ok(key("keydown", { repeat: true }));
  assert.ok(key("keyup"));
  assert.deepEqual(changes, [true, false]);
});

test("the button holds and releases", () => {
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    const { changes, point } = made();
    point("pointerdown");
    point(end);
    assert.deepEqual(changes, [true, false], end);
  }
});

test("what takes the key or the page away releases", () => {
  const ends = [
    ({ window }) => window.dispatchEvent(new window.Event("blur")),
    ({ window }) => window.document.dispatchEvent(new window.Event("visibilitychange")),
    ({ push }) => push.release(),
    ({ push }) => (push.on = false),
  ];
  for (const end of ends) {
    const page = made();
    page.key("keydown");
    assert.ok(page.push.held);
    end(page);
    assert.ok(!page.push.held, String(end));
  }
});

test("Space is a space in a field, and a press on a control that was reached with the keyboard", () => {
  const { find, changes, key, window } = made();
  for (const role of ["typed", "language", "gain", "push-to-talk", "sound-open", "file-play"]) {
    key("keydown", { key: "Tab" });
    assert.ok(!key("keydown", { target: find(role) }), role);
  }
  assert.deepEqual(changes, []);
  // The focus stays on a button that was clicked.
  window.document.dispatchEvent(new window.Event("pointerdown", { bubbles: true }));
  key("keydown", { key: "Escape" });
  assert.ok(key("keydown", { target: find("sound-open") }));
});

test("Space on the button that hangs up talks", () => {
  const { find, key, push } = made();
  key("keydown", { key: "Tab" });
  assert.ok(key("keydown", { target: find("talk") }));
  assert.ok(push.held);
  assert.ok(key("keyup", { target: find("talk") }));
});

test("nothing is held outside of a call, in the other mode, or with a further key", () => {
  const idle = made();
  idle.call.ready = false;
  const other = made({ isOn: false });
  for (const { key, point, changes } of [idle, other]) {
    assert.ok(!key("keydown"));
    point("pointerdown");
    assert.deepEqual(changes, []);
  }
  const { key, changes } = made();
  for (const further of ["ctrlKey", "altKey", "metaKey"]) assert.ok(!key("keydown", { [further]: true }));
  assert.deepEqual(changes, []);
});
