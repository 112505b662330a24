import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { MOST_BYTES, SoundSource, factorOf, readSoundFile } from "../../web/shared/sound_source.js";

/** The parts of an AudioContext that sound goes through. */
class AudioGraph {
  currentTime = 10;
  nodes = [];
  begun = []; // places from which sounds were played

  #node(more) {
    const node = { to: null, connect: (next) => (node.to = next), disconnect: () => (node.to = null), ...more };
    this.nodes.push(node);
    return node;
  }

  createMediaStreamSource(stream) {
    return this.#node({ of: stream });
  }

  createGain() {
    const gain = { value: 1, setTargetAtTime: (value) => (gain.value = value) };
    return this.#node({ gain });
  }

  createMediaStreamDestination() {
    return this.#node({ stream: { made: true } });
  }

  createBufferSource() {
    return this.#node({ start: (_when, from_s) => this.begun.push(from_s), stop: () => {} });
  }
}

function microphone() {
  const track = { enabled: true };
  return { track, getAudioTracks: () => [track] };
}

function made() {
  const graph = new AudioGraph();
  const sent = [];
  const source = new SoundSource(graph, () => sent.push(source.stream));
  return { graph, sent, source };
}

test("at 0 dB the microphone's own stream is sent, and no node is made", () => {
  const { graph, sent, source } = made();
  const stream = microphone();
  source.gain_db = 0;
  source.microphone = stream;
  assert.deepEqual([sent.at(-1) === stream, graph.nodes.length], [true, 0]);
});

test("a gain goes through one graph, which a further change keeps and 0 dB ends", () => {
  const { graph, sent, source } = made();
  const stream = microphone();
  source.microphone = stream;
  source.gain_db = 6;
  const amplified = source.stream;
  assert.notEqual(amplified, stream);
  assert.equal(sent.at(-1), amplified);
  const count = sent.length;
  source.gain_db = -20;
  assert.deepEqual([source.stream === amplified, sent.length], [true, count]);
  const [input, gain, output] = graph.nodes;
  assert.deepEqual([input.of === stream, input.to === gain, gain.to === output], [true, true, true]);
  assert.ok(Math.abs(gain.gain.value - 0.1) < 1e-9);
  source.gain_db = 0;
  assert.deepEqual([sent.at(-1) === stream, input.to], [true, null]);
});

test("another microphone is heard with the same gain, and as open as the one before", () => {
  const { graph, source } = made();
  source.gain_db = 6;
  source.microphone = microphone();
  source.open = false;
  const before = source.stream;
  const next = microphone();
  source.microphone = next;
  assert.notEqual(source.stream, before);
  assert.deepEqual([graph.nodes.at(-3).of === next, next.track.enabled], [true, false]);
  assert.ok(Math.abs(graph.nodes.at(-2).gain.value - factorOf(6)) < 1e-9);
  source.open = true;
  assert.ok(next.track.enabled);
});

test("a file takes the place of the microphone until it ends", () => {
  const { graph, sent, source } = made();
  const stream = microphone();
  source.microphone = stream;
  assert.equal(source.place_s, null);
  source.play({ duration: 4 });
  const [output, node] = graph.nodes;
  assert.deepEqual([sent.at(-1) === output.stream, output.channelCount], [true, 1]);
  graph.currentTime = 12.5;
  assert.equal(source.place_s, 2.5);
  graph.currentTime = 15;
  assert.equal(source.place_s, 4);
  node.onended();
  assert.deepEqual([sent.at(-1) === stream, source.place_s, node.to], [true, null, null]);
});

test("a file waits at its place while the call is on hold", () => {
  const { graph, sent, source } = made();
  source.play({ duration: 4 });
  graph.currentTime = 11.5;
  source.hold(true);
  const [output, first] = graph.nodes;
  graph.currentTime = 60;
  // Its end is not taken for that of the file.
  assert.deepEqual([source.place_s, first.onended, first.to, sent.at(-1) === output.stream], [1.5, null, null, true]);
  source.hold(false);
  graph.currentTime = 61;
  assert.deepEqual([source.place_s, graph.begun, graph.nodes.at(-1).to === output], [2.5, [0, 1.5], true]);
});

test("a file that is chosen on hold begins when the call goes on, unless it is stopped before", () => {
  const { graph, sent, source } = made();
  source.hold(true);
  source.play({ duration: 4 });
  graph.currentTime = 20;
  assert.deepEqual([source.place_s, graph.begun], [0, []]);
  source.hold(false);
  assert.deepEqual([source.place_s, graph.begun], [0, [0]]);
  source.hold(true);
  source.stop();
  source.hold(false);
  assert.deepEqual([source.place_s, graph.begun, sent.at(-1)], [null, [0], null]);
});

test("a file is stopped, and one without a microphone leaves nothing to be sent", () => {
  const { sent, source } = made();
  source.play({ duration: 4 });
  assert.ok(sent.at(-1));
  source.stop();
  assert.equal(sent.at(-1), null);
  const count = sent.length;
  source.stop();
  assert.equal(sent.length, count);
});

test("a microphone that is changed while a file plays is sent after it", () => {
  const { source } = made();
  source.microphone = microphone();
  source.play({ duration: 4 });
  const playing = source.stream;
  const next = microphone();
  source.microphone = next;
  assert.equal(source.stream, playing);
  source.stop();
  assert.equal(source.stream, next);
});

test("a file that is too large is refused before it is read", async () => {
  openPage();
  const file = { name: "long.wav", size: MOST_BYTES + 1, arrayBuffer: () => assert.fail("it was read") };
  await assert.rejects(readSoundFile(file), { message: "long.wav is too large: a file has 60 MB at most." });
});

test("what the page inserts is sent in place of the microphone until it is withdrawn, once", () => {
  const { graph, sent, source } = made();
  const stream = microphone();
  source.microphone = stream;
  const node = source.insert();
  assert.deepEqual([graph.nodes.at(-1) === node, sent.at(-1) === node.stream, node.channelCount], [true, true, 1]);
  source.withdraw();
  source.withdraw();
  assert.deepEqual([sent.at(-1) === stream, sent.length], [true, 3]);
});
