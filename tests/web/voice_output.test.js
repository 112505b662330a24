import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { ElementVoice, NodeVoice } from "../../web/shared/voice_output.js";

/** Node of the page's audio that records where it goes. */
class Gain {
  to = [];
  constructor(_context, { gain = 1 } = {}) {
    this.gain = { value: gain };
  }
  connect(next) {
    this.to.push(next);
    return next;
  }
  disconnect() {
    this.to = [];
  }
}

test("a voice of nodes is heard at its volume, and metered before it", () => {
  setGlobal("GainNode", Gain);
  const tap = { stream: {} };
  const context = { destination: {}, createMediaStreamDestination: () => tap };
  const voice = new NodeVoice();
  voice.volume = 0.5;
  assert.deepEqual([voice.input, voice.stream], [null, null]);
  voice.begin(context);
  const { input } = voice;
  const [metered, level] = input.to;
  assert.deepEqual([metered === tap, voice.stream === tap.stream, level.to[0] === context.destination, level.gain.value], [true, true, true, 0.5]);
  voice.volume = 0.2;
  assert.equal(level.gain.value, 0.2);
  voice.close();
  assert.deepEqual([input.to, voice.input], [[], null]);
});

test("an element whose sound the browser blocks plays after the next click", async () => {
  const window = openPage();
  let isPermitted = false;
  const player = {
    volume: 1,
    play: async () => {
      if (!isPermitted) throw Object.assign(new Error("no"), { name: "NotAllowedError" });
    },
  };
  const blocked = [];
  const voice = new ElementVoice(player, (isBlocked) => blocked.push(isBlocked));
  voice.play({});
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(blocked, [true]);
  isPermitted = true;
  document.dispatchEvent(new window.Event("pointerdown"));
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(blocked, [true, false]);
});
