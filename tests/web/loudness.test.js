import assert from "node:assert/strict";
import { test } from "node:test";
import { LoudnessMeter, weighting } from "../../web/shared/loudness.js";

/** Return tones after each other, each given as [seconds, peak in dBFS]. */
function tones(rate_hz, hz, ...parts) {
  const pieces = parts.map(([seconds, dbfs]) => {
    const amplitude = 10 ** (dbfs / 20);
    return Float32Array.from({ length: seconds * rate_hz }, (_, at) => amplitude * Math.sin((2 * Math.PI * hz * at) / rate_hz));
  });
  const whole = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function measured(rate_hz, samples, piece = 128) {
  const meter = new LoudnessMeter(rate_hz);
  for (let at = 0; at < samples.length; at += piece) {
    const part = samples.subarray(at, at + piece);
    meter.feed(part, part.length);
  }
  return meter;
}

function isAbout(actual, expected) {
  assert.ok(Math.abs(actual - expected) <= 0.1, `${actual} LUFS, where ${expected} are expected`);
}

// EBU Tech 3341 gives both channels of a stereo signal the same tone, whose powers add up: one channel has 3.01 LU less.
const ONE_OF_TWO = -10 * Math.log10(2);

test("at 48 kHz the filters are those that the standard prints", () => {
  const [shelf, pass] = weighting(48_000);
  const near = (actual, expected) => actual.forEach((each, at) => assert.ok(Math.abs(each - expected[at]) < 1e-9, `${each}`));
  near(shelf.b, [1.53512485958697, -2.69169618940638, 1.19839281085285]);
  near(shelf.a, [1, -1.69065929318241, 0.73248077421585]);
  near(pass.b, [1, -2, 1]);
  near(pass.a, [1, -1.99004745483398, 0.99007225036621]);
});

for (const rate_hz of [16_000, 44_100, 48_000]) {
  test(`a sine of 997 Hz at 0 dBFS in one channel has -3.01 LUFS at ${rate_hz} Hz`, () => {
    const meter = measured(rate_hz, tones(rate_hz, 997, [3, 0]));
    isAbout(meter.momentary, -3.01);
    isAbout(meter.integrated, -3.01);
  });
}

for (const dbfs of [-23, -33]) {
  test(`EBU Tech 3341, a tone of ${dbfs} dBFS (cases 1 and 2) in one channel`, () => {
    const meter = measured(48_000, tones(48_000, 1_000, [20, dbfs]));
    isAbout(meter.momentary, dbfs + ONE_OF_TWO);
    isAbout(meter.integrated, dbfs + ONE_OF_TWO);
  });
}

test("EBU Tech 3341, case 3 in one channel: what is quiet before and after does not pass the relative gate", () => {
  const samples = tones(48_000, 1_000, [10, -36], [60, -23], [10, -36]);
  isAbout(measured(48_000, samples).integrated, -23 + ONE_OF_TWO);
});

test("EBU Tech 3341, case 4 in one channel: what is below the absolute gate does not lower the relative one", () => {
  const samples = tones(48_000, 1_000, [10, -72], [10, -36], [60, -23], [10, -36], [10, -72]);
  isAbout(measured(48_000, samples).integrated, -23 + ONE_OF_TWO);
});

test("EBU Tech 3341, case 5 in one channel: the mean is that of the powers", () => {
  const samples = tones(48_000, 1_000, [20, -26], [20.1, -20], [20, -26]);
  isAbout(measured(48_000, samples).integrated, -23 + ONE_OF_TWO);
});

test("the size of the pieces makes no difference", () => {
  const samples = tones(16_000, 440, [1, -20], [1, -50], [1, -10]);
  const [one, other] = [measured(16_000, samples, 1), measured(16_000, samples, 997)];
  assert.deepEqual([one.momentary, one.integrated], [other.momentary, other.integrated]);
});

test("a block has 400 ms, and a new one ends every 100 ms", () => {
  const meter = new LoudnessMeter(48_000);
  const samples = tones(48_000, 997, [0.1, -20]);
  const ended = [1, 2, 3, 4, 5].map(() => meter.feed(samples, samples.length));
  assert.deepEqual(ended, [false, false, false, true, true]);
});

test("silence has no loudness, whether it comes as zeros or as no channel", () => {
  const meter = measured(48_000, new Float32Array(96_000));
  assert.deepEqual([meter.momentary, meter.integrated], [-Infinity, -Infinity]);
  meter.feed(tones(48_000, 997, [10, -20]), 480_000);
  const spoken = meter.integrated;
  meter.feed(undefined, 480_000);
  assert.ok(meter.momentary < -70);
  isAbout(meter.integrated, spoken);
});
