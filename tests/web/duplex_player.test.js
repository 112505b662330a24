import assert from "node:assert/strict";
import { test } from "node:test";
import { DuplexPlayer } from "../../web/shared/duplex_player.js";

const RATE_HZ = 24_000;
const LEAD_S = 0.12;

/** The parts of an AudioContext that play buffers; `currentTime` is set by the test. */
class Speaker {
  currentTime = 0;
  destination = {};
  sources = [];

  createBuffer(channels, length, rate) {
    return { duration: length / rate, copyToChannel: () => {} };
  }

  createBufferSource() {
    const source = new EventTarget();
    Object.assign(source, {
      startedAt: null,
      isStopped: false,
      connect: () => {},
      start: (at) => (source.startedAt = at),
      stop: () => (source.isStopped = true),
    });
    this.sources.push(source);
    return source;
  }
}

const seconds = (length) => new Float32Array(length * RATE_HZ);

function near(actual, expected) {
  assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);
}

test("the first piece starts after a short lead, and the next one where it ends", () => {
  const speaker = new Speaker();
  speaker.currentTime = 5;
  const player = new DuplexPlayer(speaker);
  player.play(seconds(1));
  player.play(seconds(0.5));
  near(speaker.sources[0].startedAt, 5 + LEAD_S);
  near(speaker.sources[1].startedAt, 6 + LEAD_S);
  near(player.aheadS, 1.5 + LEAD_S);
});

test("a piece that comes after a gap has the lead again", () => {
  const speaker = new Speaker();
  speaker.currentTime = 1;
  const player = new DuplexPlayer(speaker);
  player.play(seconds(1));
  speaker.currentTime = 10;
  assert.equal(player.aheadS, 0);
  player.play(seconds(1));
  near(speaker.sources[1].startedAt, 10 + LEAD_S);
});

test("stopping drops everything that is not heard yet, and speech after it starts anew", () => {
  const speaker = new Speaker();
  speaker.currentTime = 1;
  const player = new DuplexPlayer(speaker);
  player.play(seconds(1));
  player.play(seconds(1));
  speaker.currentTime = 1.5;
  player.stop();
  assert.deepEqual(speaker.sources.map(({ isStopped }) => isStopped), [true, true]);
  assert.equal(player.aheadS, 0);
  player.play(seconds(1));
  near(speaker.sources[2].startedAt, 1.5 + LEAD_S);
  assert.equal(speaker.sources[2].isStopped, false);
});

test("a piece that has been heard is released and not stopped later", () => {
  const speaker = new Speaker();
  const player = new DuplexPlayer(speaker);
  player.play(seconds(1));
  speaker.sources[0].dispatchEvent(new Event("ended"));
  player.stop();
  assert.equal(speaker.sources[0].isStopped, false);
});

test("an empty piece starts nothing", () => {
  const speaker = new Speaker();
  const player = new DuplexPlayer(speaker);
  player.play(seconds(0));
  assert.equal(speaker.sources.length, 0);
});
