import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf, captionsOf } from "../../web/shared/waveform.js";

const CALL = [
  { at_ms: 60, event: "ReplyStarted", reply_id: "hello" },
  { at_ms: 920, event: "ReplyFinished", reply_id: "hello", text: "Hello there.", unheard: "", truncated: false },
  { at_ms: 1_084, event: "VoiceStarted", voiced_ms: 128 },
  { at_ms: 1_085, event: "TurnStarted" },
  { at_ms: 3_140, event: "VoiceEnded", silence_ms: 128 },
  { at_ms: 3_640, event: "TurnEndDecided", silence_ms: 620 },
  { at_ms: 3_641, event: "TurnEnded", text: "how do i report a lost card" },
  { at_ms: 3_660, event: "ReplyStarted", reply_id: "answer" },
  { at_ms: 6_910, event: "ReplyFinished", reply_id: "answer", text: "Call the hotline", unheard: "at once.", truncated: true },
];

test("a block begins with the first sound of a voice and ends with its last", () => {
  assert.deepEqual(blocksOf(CALL), [
    { side: "bot", start_ms: 60, end_ms: 920, cut: false },
    { side: "caller", start_ms: 956, end_ms: 3_012, cut: false },
    { side: "bot", start_ms: 3_660, end_ms: 6_910, cut: true },
  ]);
});

test("an answer has the time since the caller's last sound, and what was not heard of it", () => {
  const [greeting, question, answer] = captionsOf(CALL);
  assert.deepEqual([greeting.text, greeting.latency_ms], ["Hello there.", null]);
  assert.deepEqual([question.side, question.at_ms, question.text], ["caller", 1_085, "how do i report a lost card"]);
  assert.deepEqual([answer.text, answer.unheard, answer.latency_ms], ["Call the hotline", "at once.", 640]);
});

test("a voice or a reply that a crash cut short is no block, and a reply of nothing is no line", () => {
  assert.deepEqual(blocksOf(CALL.slice(0, 4)).length, 1);
  assert.deepEqual(captionsOf([CALL[0], { ...CALL[1], text: "" }]), []);
});

test("a typed turn is a line of the caller", () => {
  const [typed] = captionsOf([{ at_ms: 5, event: "TextTyped", text: "a lost card" }]);
  assert.deepEqual([typed.side, typed.text], ["caller", "a lost card"]);
});

test("noise makes no line and no latency, and words that come later belong to the turn before them", () => {
  const noise = [
    { at_ms: 1_000, event: "TurnStarted" },
    { at_ms: 1_500, event: "TurnEndDecided", silence_ms: 400 },
    { at_ms: 1_501, event: "TurnEnded", text: "" },
  ];
  const question = [
    { at_ms: 60_000, event: "TurnStarted" },
    { at_ms: 62_000, event: "TurnEnded", text: "a card" },
  ];
  const asked = [
    { at_ms: 16_000, event: "ReplyStarted", reply_id: "1" },
    { at_ms: 17_000, event: "ReplyFinished", reply_id: "1", text: "Are you still there?" },
  ];
  const [unasked, caller] = captionsOf([...noise, ...asked, ...question]);
  assert.deepEqual([unasked.latency_ms, caller.at_ms], [null, 60_000]);
  const [later] = captionsOf([...noise, { at_ms: 2_500, event: "TurnTranscribed", text: "hello" }]);
  assert.deepEqual([later.side, later.at_ms, later.text], ["caller", 1_000, "hello"]);
});

test("what the caller's page measured belongs to the reply that began before it, also when that is over", () => {
  const heard = { event: "LatencyHeard", heard_ms: 700, server_ms: 640, round_trip_ms: 1, jitter_buffer_ms: 40, output_ms: 10 };
  const while_on = [...CALL];
  while_on.splice(8, 0, { at_ms: 3_800, ...heard });
  assert.equal(captionsOf(while_on)[2].heard.heard_ms, 700);
  assert.equal(captionsOf([...CALL, { at_ms: 7_000, ...heard }])[2].heard.heard_ms, 700);
  assert.equal(captionsOf(while_on)[0].heard, undefined);
});
