import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { FileError, FileSource, refusalOf } from "../../web/shared/file_source.js";

beforeEach(() => openPage());

test("a file of sound or of pictures is opened, also where the browser does not know its type", () => {
  for (const type of ["audio/wav", "video/webm", ""]) assert.equal(refusalOf({ name: "a", size: 60_000_000, type }), "");
});

test("a file that is too large is refused with what to do", async () => {
  const file = { name: "talk.mp4", size: 60_000_001, type: "video/mp4" };
  assert.equal(refusalOf(file), "talk.mp4 is over 60 MB. Choose a smaller file, or a part of it.");
  await assert.rejects(FileSource.open(file), FileError);
});

test("a file of another kind is refused", () => {
  const file = { name: "notes.pdf", size: 10, type: "application/pdf" };
  assert.equal(refusalOf(file), "notes.pdf holds no sound. Choose a file of audio or video.");
});

test("a file that is chosen while the conversation is paused begins when it goes on", async () => {
  const calls = [];
  const player = Object.assign(new EventTarget(), { play: async () => calls.push("play"), pause: () => calls.push("pause"), ended: false });
  const node = () => ({ connect: (next) => next });
  setGlobal("GainNode", class { connect = (next) => next; });
  const context = { createMediaElementSource: node, destination: {} };
  const source = new FileSource("a.wav", "blob:a", player);
  await source.play(context, {}, { progress: () => {}, end: () => {} }, { isHeld: true });
  assert.deepEqual(calls, []);
  source.hold(false);
  source.hold(true);
  assert.deepEqual(calls, ["play", "pause"]);
});
