import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { MicrophoneButton } from "../../web/shared/microphone_button.js";

for (const file of ["index.html", "omni.html"]) {
  test(`the button of ${file} says what it does`, () => {
    openPage({ file });
    const button = document.querySelector('[data-role="microphone"]');
    const shown = new MicrophoneButton(button);
    const usual = { isUp: true, deaf: false, isMuted: false, pushes: false, isHeld: false };
    const state = () => [button.getAttribute("aria-label"), button.getAttribute("aria-pressed"), button.getAttribute("aria-keyshortcuts"), document.body.dataset.microphone];
    shown.show({ ...usual, isUp: false });
    assert.equal(button.disabled, true);
    shown.show(usual);
    assert.deepEqual([button.disabled, ...state()], [false, "Mute microphone", "false", "M", "on"]);
    shown.show({ ...usual, isMuted: true });
    assert.deepEqual(state(), ["Mute microphone", "true", "M", "muted"]);
    shown.show({ ...usual, pushes: true, isHeld: true });
    assert.deepEqual(state(), ["Hold to talk", "true", "Space", "held"]);
    shown.show({ ...usual, deaf: true });
    assert.deepEqual(state(), ["Turn on microphone", "false", "M", "none"]);
  });
}
