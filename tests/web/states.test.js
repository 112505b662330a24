import assert from "node:assert/strict";
import { test } from "node:test";
import { STRINGS } from "../../web/shared/strings.js";
import { inCall, next, wordOf } from "../../web/shared/states.js";

const STATES = ["ready", "connecting", "reconnecting", "listening", "thinking", "speaking", "ended", "error"];
const IN_CALL = ["connecting", "reconnecting", "listening", "thinking", "speaking"];

test("a call passes through connecting, listening, thinking and speaking", () => {
  const seen = [];
  let state = "ready";
  for (const event of ["start", "up", "thinking", "botStarted", "botStopped", "ended"]) {
    state = next(state, event);
    seen.push(state);
  }
  assert.deepEqual(seen, ["connecting", "listening", "thinking", "speaking", "listening", "ended"]);
});

test("a call in which the bot speaks before it is up begins with that", () => {
  for (const state of ["connecting", "reconnecting"]) {
    assert.equal(next(state, "botStarted"), state);
    assert.equal(next(state, "upSpeaking"), "speaking");
  }
  for (const state of ["ready", "ended", "error"]) assert.equal(next(state, "upSpeaking"), state);
});

test("a call whose connection is lost goes on, or fails", () => {
  for (const state of ["listening", "thinking", "speaking"]) assert.equal(next(state, "lost"), "reconnecting");
  assert.equal(next("reconnecting", "up"), "listening");
  for (const state of ["ready", "connecting", "ended", "error"]) assert.equal(next(state, "lost"), state);
});

test("an answer without sound leads back to listening", () => {
  assert.equal(next("thinking", "quiet"), "listening");
  assert.equal(next("speaking", "quiet"), "speaking");
});

test("a user who speaks during a reply is listened to", () => {
  assert.equal(next("speaking", "userStarted"), "listening");
});

test("a late message of an ended call changes nothing", () => {
  for (const state of ["ready", "ended", "error"]) {
    for (const event of ["thinking", "botStarted", "botStopped", "userStarted", "quiet", "up"]) {
      assert.equal(next(state, event), state, `${event} in ${state}`);
    }
  }
});

test("every state of a call can be left by each way in which a call ends", () => {
  for (const state of IN_CALL) {
    assert.equal(next(state, "hungUp"), "ready");
    assert.equal(next(state, "ended"), "ended");
    assert.equal(next(state, "failed"), "error");
  }
});

test("after every end a new call can begin", () => {
  for (const state of ["ready", "ended", "error"]) assert.equal(next(state, "start"), "connecting");
});

test("a page that is connecting is not in a call yet", () => {
  assert.deepEqual(STATES.filter(inCall), ["listening", "thinking", "speaking"]);
});

test("each state has a name", () => {
  for (const state of STATES) assert.ok(STRINGS.en[`state_${state}`], state);
});

test("a call that listens says what the bot can hear", () => {
  const heard = { deaf: false, isMuted: false, pushes: false, isHeld: false, playsFile: false };
  assert.equal(wordOf("listening", heard), "listening");
  assert.equal(wordOf("listening", { ...heard, isMuted: true }), "muted");
  assert.equal(wordOf("listening", { ...heard, deaf: true, pushes: true }), "deaf");
  assert.equal(wordOf("listening", { ...heard, pushes: true, isMuted: true }), "released");
  assert.equal(wordOf("listening", { ...heard, deaf: true, playsFile: true }), "file");
});

test("a held button is said in each state of a call, and only there", () => {
  const heard = { deaf: false, isMuted: false, pushes: true, isHeld: true, playsFile: false };
  for (const state of STATES) assert.equal(wordOf(state, heard), inCall(state) ? "on_air" : state);
  assert.equal(wordOf("speaking", { ...heard, isHeld: false }), "speaking");
});

test("each word has its text", () => {
  for (const word of ["held", "released", "deaf", "muted", "file"]) assert.ok(STRINGS.en[`state_${word}`], word);
});
