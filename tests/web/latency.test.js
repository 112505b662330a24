import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { difference, heardLater } from "../../web/shared/latency.js";
import { AudibleMeter, VoiceGap } from "../../web/shared/latency_meter.js";

const RATE_HZ = 48_000;

/** Make a stream that is silent but for tones, given as [start, end] in samples. */
function stream(length, ...tones) {
  const made = new Float32Array(length);
  for (const [start, end] of tones) {
    for (let at = start; at < end; at += 1) made[at] = at % 2 ? 0.2 : -0.2;
  }
  return made;
}

/** Return the gaps that are reported for two streams, fed in pieces of a size. */
function gaps(caller, bot, piece = 128) {
  const meter = new VoiceGap(RATE_HZ);
  const found = [];
  for (let at = 0; at < caller.length; at += piece) {
    const gap = meter.feed(caller.subarray(at, at + piece), bot.subarray(at, at + piece), Math.min(piece, caller.length - at));
    if (gap !== null) found.push(gap);
  }
  return found;
}

for (const piece of [1, 128, 1_000]) {
  test(`the gap is exact to the sample, in pieces of ${piece}`, () => {
    const caller = stream(96_000, [4_800, 24_000]);
    const bot = stream(96_000, [57_601, 80_000]);
    assert.deepEqual(gaps(caller, bot, piece), [((57_601 - 23_999) * 1_000) / RATE_HZ]);
  });
}

test("each answer is reported once, and its second sentence is none", () => {
  const caller = stream(240_000, [4_800, 24_000], [120_000, 140_000]);
  const bot = stream(240_000, [48_000, 60_000], [70_000, 90_000], [160_000, 200_000]);
  const found = gaps(caller, bot);
  assert.equal(found.length, 2);
  assert.deepEqual(found.map(Math.round), [500, 417]);
});

test("a greeting, and a bot that speaks over the caller, are no answers", () => {
  const length = 192_000;
  assert.deepEqual(gaps(stream(length), stream(length, [48_000, 60_000])), []);
  assert.deepEqual(gaps(stream(length, [4_800, 100_000]), stream(length, [48_000, 60_000])), []);
});

test("a click, and noise below the threshold, are no voice", () => {
  const clicks = stream(96_000, [20_000, 20_200]);
  const faint = stream(96_000, [20_000, 40_000]).map((sample) => sample / 100);
  for (const caller of [clicks, faint]) assert.deepEqual(gaps(caller, stream(96_000, [60_000, 80_000])), []);
});

test("silence that comes as no channel at all keeps the time", () => {
  const meter = new AudibleMeter(RATE_HZ);
  meter.feed(undefined, 48_000);
  assert.ok(meter.feed(stream(4_800, [0, 4_800]), 4_800));
  assert.deepEqual([meter.began, meter.ended], [48_000, 52_799]);
});

test("the difference names what the known causes leave", () => {
  const heard = { heard_ms: 760, round_trip_ms: 20, jitter_buffer_ms: 60, output_ms: 25 };
  assert.deepEqual(difference(heard, 640.4), { later_ms: 120, rest_ms: 15 });
});

test("a small difference needs no reason, a large one has its causes and what they leave", () => {
  openPage();
  const near = { heard_ms: 660, round_trip_ms: 1, jitter_buffer_ms: 10, output_ms: 5 };
  assert.match(heardLater(near, 640), /660 ms .* 640 ms .*20 ms apart\.$/);
  const far = { ...near, heard_ms: 760, jitter_buffer_ms: 60 };
  assert.match(heardLater(far, 640), /120 ms apart, .*jitter buffer 60 ms.*; 54 ms more/);
  assert.doesNotMatch(heardLater({ ...far, jitter_buffer_ms: 100 }, 640), /more/);
});
