import assert from "node:assert/strict";
import { test } from "node:test";
import { watchLevel } from "../../web/shared/level.js";

/** The parts of an AudioContext that measure a stream; every sample of it has one amplitude. */
class AudioGraph {
  amplitude = 0;
  connected = null;

  createMediaStreamSource() {
    return {
      connect: (node) => (this.connected = node),
      disconnect: () => (this.connected = null),
    };
  }

  createAnalyser() {
    return { fftSize: 2048, getFloatTimeDomainData: (samples) => samples.fill(this.amplitude) };
  }
}

function watched(t) {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const graph = new AudioGraph();
  const shown = [];
  const stop = watchLevel(graph, {}, (level) => shown.push(level));
  const level = (amplitude) => {
    graph.amplitude = amplitude;
    t.mock.timers.tick(60);
    return shown.at(-1);
  };
  return { graph, level, shown, stop };
}

test("silence has the level 0 and a loud voice the level 1", (t) => {
  const { level } = watched(t);
  assert.equal(level(0), 0);
  assert.equal(level(1), 1);
});

test("the level is linear in decibels between the limits", (t) => {
  const { level } = watched(t);
  // -36 dB is half way from -60 dB to -12 dB.
  assert.ok(Math.abs(level(10 ** (-36 / 20)) - 0.5) < 1e-3);
  assert.ok(Math.abs(level(10 ** (-24 / 20)) - 0.75) < 1e-3);
});

test("after the end the level is 0, nothing more is measured and the stream is released", (t) => {
  const { graph, level, shown, stop } = watched(t);
  level(1);
  assert.ok(graph.connected);
  stop();
  assert.equal(shown.at(-1), 0);
  assert.equal(graph.connected, null);
  const count = shown.length;
  t.mock.timers.tick(600);
  assert.equal(shown.length, count);
});
