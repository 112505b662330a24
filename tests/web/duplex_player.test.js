import assert from "node:assert/strict";
import { test } from "node:test";
import { DuplexPlayer } from "../../web/shared/duplex_player.js";

const RATE_HZ = 24_000;
const LEAD_S = 0.12;

/** The parts of an AudioContext that play buffers; `currentTime` is set by the test. */
class Speaker extends EventTarget {
  state = "running";
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

/** Sound of a number of seconds that is never silent. */
const speech = (length) => seconds(length).fill(0.5);

/** Return the sources that sound after a time, with what has been stopped left out. */
function soundingAfter(speaker, atS) {
  return speaker.sources.filter(({ isStopped, startedAt }) => !isStopped && startedAt >= atS);
}

test("after a cut nothing of before is played, and the words that were not heard are known", () => {
  const speaker = new Speaker();
  speaker.currentTime = 1;
  const player = new DuplexPlayer(speaker);
  player.play(speech(1), "one two");
  player.play(speech(1), " three four");
  speaker.currentTime = 1 + LEAD_S + 0.9;
  player.stop();
  player.endTurn();
  assert.deepEqual(soundingAfter(speaker, 0), []);
  player.play(speech(1), "five");
  assert.equal(soundingAfter(speaker, speaker.currentTime).length, 1);
  speaker.currentTime += 5;
  const [cut, next] = player.spoken.turns(player.heardS);
  assert.deepEqual([cut.heard, cut.rest, cut.isCut], ["one two", " three four", true]);
  assert.deepEqual([next.heard, next.rest, next.isCut], ["five", "", false]);
});

test("during a pause nothing is played, and after it nothing that came before", () => {
  const speaker = new Speaker();
  speaker.currentTime = 1;
  const player = new DuplexPlayer(speaker);
  player.play(speech(1), "before");
  player.hold();
  player.play(speech(1), " late");
  assert.deepEqual(soundingAfter(speaker, 0), []);
  speaker.currentTime = 20;
  player.release();
  assert.equal(player.aheadS, 0);
  player.play(speech(1), "after");
  assert.deepEqual(soundingAfter(speaker, 0).map(({ startedAt }) => startedAt), [20 + LEAD_S]);
  speaker.currentTime = 30;
  const [held, next] = player.spoken.turns(player.heardS);
  assert.deepEqual([held.heard, held.rest], ["", "before late"]);
  assert.equal(next.heard, "after");
});

test("a player that is closed, as before a new connection, never sounds again", () => {
  const speaker = new Speaker();
  const first = new DuplexPlayer(speaker);
  first.play(speech(2), "of the connection that was lost");
  first.close();
  first.play(speech(1), " and what came late");
  const second = new DuplexPlayer(speaker);
  assert.equal(second.aheadS, 0);
  second.play(speech(1), "new");
  assert.equal(soundingAfter(speaker, 0).length, 1);
  first.stop();
  assert.equal(soundingAfter(speaker, 0).length, 1);
});

test("what comes while the context stands still is not played when it runs again", () => {
  const speaker = new Speaker();
  const player = new DuplexPlayer(speaker);
  player.play(speech(1), "heard at most in part");
  speaker.state = "suspended";
  speaker.dispatchEvent(new Event("statechange"));
  player.play(speech(1), " missed");
  speaker.state = "running";
  speaker.dispatchEvent(new Event("statechange"));
  assert.deepEqual(soundingAfter(speaker, 0), []);
  player.play(speech(1), "now");
  assert.equal(soundingAfter(speaker, 0).length, 1);
});

test("a backlog of more than a minute is dropped", () => {
  const speaker = new Speaker();
  const player = new DuplexPlayer(speaker);
  for (let piece = 0; piece < 62; piece += 1) player.play(speech(1), "word ");
  assert.deepEqual(soundingAfter(speaker, 0), []);
  assert.equal(player.aheadS, 0);
});

test("silence before the speech of a piece holds its words back", () => {
  const speaker = new Speaker();
  const player = new DuplexPlayer(speaker);
  const padded = seconds(2);
  padded.fill(0.5, RATE_HZ);
  speaker.currentTime = 1;
  player.play(padded, "word");
  const at = (timeS) => player.spoken.turns(timeS)[0].heard;
  assert.deepEqual([at(1 + LEAD_S + 0.9), at(1 + LEAD_S + 1.1)], ["", "word"]);
});

test("words wait for the delay of the loudspeaker", () => {
  const speaker = new Speaker();
  speaker.outputLatency = 0.25;
  speaker.currentTime = 3;
  assert.equal(new DuplexPlayer(speaker).heardS, 2.75);
});
