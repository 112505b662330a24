import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import {
  answersOf,
  cutsOf,
  overlapsOf,
  perceivedOf,
  stageNames,
  toolsOf,
  votesOf,
  withImages,
} from "../../web/shared/call_facts.js";
import { clockOf } from "../../web/shared/clock_text.js";
import { captionsOf } from "../../web/shared/waveform.js";

const BEGAN_US = 5_000_000;
const CALL = { call_id: "c", began_us: BEGAN_US, duration_ms: 60_000, events: [], pictures: [], images: [], peaks: null };
const at = (ms) => BEGAN_US + ms * 1_000;
const block = (side, start_ms, end_ms) => ({ side, start_ms, end_ms, cut: false });

test("both sides overlap where both are voiced, also with several replies", () => {
  const blocks = [
    block("bot", 0, 1_000),
    block("caller", 800, 3_000),
    block("bot", 2_500, 2_700),
    block("bot", 2_900, 4_000),
    block("caller", 4_000, 4_500),
  ];
  assert.deepEqual(overlapsOf(blocks), [
    { start_ms: 800, end_ms: 1_000 },
    { start_ms: 2_500, end_ms: 2_700 },
    { start_ms: 2_900, end_ms: 3_000 },
  ]);
  assert.deepEqual(overlapsOf([block("bot", 0, 100), block("caller", 100, 200)]), []);
});

test("a cut has its reason and what was not heard, and its reply may be resumed", () => {
  const cuts = cutsOf([
    { at_ms: 0, event: "ReplyStarted", reply_id: "a" },
    { at_ms: 500, event: "ReplyCut", reason: "words", voice_ms: 320 },
    { at_ms: 510, event: "ReplyFinished", reply_id: "a", truncated: true, text: "Call", unheard: "the hotline." },
    { at_ms: 900, event: "ReplyResumed", from_word: 1 },
    { at_ms: 910, event: "ReplyStarted", reply_id: "b" },
    { at_ms: 1_500, event: "ReplyFinished", reply_id: "b", truncated: true, text: "the", unheard: "hotline." },
  ]);
  assert.deepEqual(cuts, [
    { at_ms: 500, reason: "words", voice_ms: 320, unheard: "the hotline.", resumed_ms: 900 },
    { at_ms: 1_500, reason: "", voice_ms: null, unheard: "hotline.", resumed_ms: null },
  ]);
});

test("a cut reply that a crash left unreported does not take the words of the next one", () => {
  const [cut, other] = cutsOf([
    { at_ms: 500, event: "ReplyCut", reason: "sound", voice_ms: 300 },
    { at_ms: 900, event: "ReplyStarted", reply_id: "b" },
    { at_ms: 950, event: "ReplyFinished", reply_id: "b", truncated: true, text: "", unheard: "Yes." },
  ]);
  assert.deepEqual([cut.unheard, other.unheard, other.reason], ["", "Yes.", ""]);
});

test("an answer has its stages, and the latency at the ear that came after it", () => {
  const stages = [["stt_final", 250.5], ["endpoint_wait", 349.5]];
  const events = [
    { at_ms: 1_000, event: "AnswerHeard", latency_ms: 600, stages_ms: stages },
    { at_ms: 1_300, event: "LatencyHeard", heard_ms: 720, server_ms: 600, stages_ms: stages },
    { at_ms: 9_000, event: "AnswerHeard", latency_ms: 80, stages_ms: [["playout_queue", 80]] },
  ];
  const answers = answersOf(events, []);
  assert.deepEqual(answers, [
    { at_ms: 1_000, total_ms: 600, stages, heard_ms: 720 },
    { at_ms: 9_000, total_ms: 80, stages: [["playout_queue", 80]], heard_ms: null },
  ]);
  assert.deepEqual(stageNames(answers), ["stt_final", "endpoint_wait", "playout_queue"]);
});

test("recordings of earlier releases show what they have of latencies", () => {
  const heard = { at_ms: 1_300, event: "LatencyHeard", heard_ms: 720, server_ms: 600, stages_ms: [["stt_final", 600]] };
  assert.deepEqual(answersOf([heard], []), [{ at_ms: 1_300, total_ms: 600, stages: [["stt_final", 600]], heard_ms: 720 }]);
  const events = [
    { at_ms: 3_640, event: "TurnEndDecided", silence_ms: 620 },
    { at_ms: 3_641, event: "TurnEnded", text: "a card" },
    { at_ms: 3_660, event: "ReplyStarted", reply_id: "r" },
    { at_ms: 4_000, event: "ReplyFinished", reply_id: "r", text: "Yes." },
  ];
  assert.deepEqual(answersOf(events, captionsOf(events)), [{ at_ms: 3_660, total_ms: 640, stages: [], heard_ms: null }]);
});

test("the votes of an engine are runs, the last one up to the end", () => {
  const votes = votesOf([{ at_ms: 80, event: "VoteChanged", vote: "listen" }, { at_ms: 400, event: "VoteChanged", vote: "speak" }], 900);
  assert.deepEqual(votes.map(({ start_ms, end_ms, kind }) => [start_ms, end_ms, kind]), [[80, 400, "listen"], [400, 900, "speak"]]);
});

test("a tool lasts from its call to its result, and those of other calls are not shown", () => {
  const session = [
    { kind: "tool_call", event_us: at(-9_000), payload: { call_id: "0", name: "early" } },
    { kind: "tool_call", event_us: at(2_000), payload: { call_id: "1", name: "hours" } },
    { kind: "tool_call", event_us: at(2_100), payload: { call_id: "2", name: "transfer" } },
    { kind: "tool_result", event_us: at(2_320), payload: { call_id: "1", name: "hours", outcome: "failed" } },
    { kind: "tool_result", event_us: at(2_400), payload: { call_id: "0", name: "early", outcome: "done" } },
  ];
  const events = [
    { at_ms: 2_010, event: "ToolsCalled" },
    { at_ms: 30_000, event: "ToolsCalled" },
  ];
  const tools = toolsOf(session, { ...CALL, events });
  assert.deepEqual(
    tools.map(({ text, start_ms, end_ms, kind }) => [text, start_ms, end_ms, kind]),
    [
      ["hours", 2_000, 2_320, "failed"],
      ["transfer", 2_100, 2_100, "open"],
      ["", 30_000, 30_200, "unnamed"],
    ],
  );
});

test("what was perceived is on the time line of the recording, by its last revision", () => {
  openPage({ file: "session.html" });
  const report = (statement, body, start_ms) => ({
    kind: "annotation",
    event_us: at(start_ms + 500),
    payload: { call_id: "c", statement, body: { start_us: at(start_ms), end_us: at(start_ms + 500), ...body } },
  });
  const found = perceivedOf(
    [
      report(1, { type: "DiarPayload", speaker_id: "speaker 1" }, 1_000),
      report(1, { type: "DiarPayload", speaker_id: "speaker 2" }, 1_000),
      report(2, { type: "ProsodyPayload", level_offset_db: 9 }, 400),
      report(3, { type: "ProsodyPayload" }, 3_000),
      report(4, { type: "VisionPayload", gesture: "waving" }, 70_000),
      report(5, { type: "SpeechPayload", text: "hello" }, 100),
    ],
    CALL,
  );
  assert.deepEqual(
    found.map(({ lane, start_ms, end_ms, text }) => [lane, start_ms, end_ms, text]),
    [
      ["prosody", 400, 900, "louder"],
      ["speaker", 1_000, 1_500, "speaker 2"],
    ],
  );
});

test("pictures belong to the turn that was the last one when they came", () => {
  const caption = (side, at_ms) => ({ side, at_ms, text: side, unheard: "", latency_ms: null });
  const lines = withImages(
    [caption("bot", 0), caption("caller", 1_000), caption("bot", 3_000), caption("caller", 8_000)],
    [{ at_ms: 500, name: "early" }, { at_ms: 2_900, name: "one" }, { at_ms: 4_000, name: "two" }],
  );
  assert.deepEqual(lines.map(({ text, images }) => [text, images.map(({ name }) => name)]), [
    ["", ["early"]],
    ["bot", []],
    ["caller", ["one", "two"]],
    ["bot", []],
    ["caller", []],
  ]);
});

test("a time is written as minutes and seconds", () => {
  assert.deepEqual([clockOf(-5), clockOf(61_999), clockOf(3_600_000)], ["0:00", "1:01", "60:00"]);
});
