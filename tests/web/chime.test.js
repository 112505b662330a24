import assert from "node:assert/strict";
import { test } from "node:test";
import { chime } from "../../web/shared/chime.js";

/** The parts of an AudioContext that make a tone. */
class AudioGraph {
  currentTime = 5;
  destination = {};
  tones = [];
  levels = [];

  createOscillator() {
    const tone = { frequency: {}, connect: (next) => next, start: (at) => (tone.start_s = at), stop: (at) => (tone.stop_s = at) };
    this.tones.push(tone);
    return tone;
  }

  createGain() {
    const points = [];
    const keep = (value, at) => points.push([value, at]);
    const level = {
      points,
      gain: { setValueAtTime: keep, exponentialRampToValueAtTime: keep },
      connect: (next) => (level.to = next),
    };
    this.levels.push(level);
    return level;
  }
}

test("two quiet tones follow each other, the second one higher, and end", () => {
  const graph = new AudioGraph();
  chime(graph);
  const [first, second] = graph.tones;
  assert.equal(graph.tones.length, 2);
  assert.ok(first.start_s === 5 && second.start_s > 5 && second.stop_s < 6);
  assert.ok(second.frequency.value > first.frequency.value);
  for (const { points, to } of graph.levels) {
    assert.equal(to, graph.destination);
    assert.ok(Math.max(...points.map(([value]) => value)) <= 0.1);
    // Silent at both ends: it does not click.
    assert.ok(points.at(0)[0] < 0.001 && points.at(-1)[0] < 0.001);
  }
});
