// What a recorded call shows besides its turns: overlaps, cuts and resumed replies, latencies of answers, votes of an engine, and
// what was perceived and done meanwhile. Reads the events of the recording and of the session. Pure.

import { marksOf } from "./lanes.js";

/** @import { RecordingDetail, RecordingEvent, SessionEvent } from "../types/server.js" */
/** @import { Block, Caption } from "./waveform.js" */

// A call of tools that the session has as events of their own is no other one.
const SAME_CALL_MS = 2_000;
// A call of tools of which nothing else is known.
const SHOWN_MS = 200;

/** @typedef {"prosody" | "speaker" | "vision" | "vote" | "tool"} LaneName */
/** @typedef {{ lane: LaneName, start_ms: number, end_ms: number, text: string, kind: string }} LaneItem */
/** @typedef {{ start_ms: number, end_ms: number }} Overlap */
/** @typedef {{ at_ms: number, reason: string, voice_ms: number | null, unheard: string, resumed_ms: number | null }} CutReply */
/** @typedef {{ at_ms: number, total_ms: number, stages: [string, number][], heard_ms: number | null }} Answer */
/** @typedef {{ at_ms: number, name: string }} TurnImage */

/** Lanes from the top, with the report of a specialist that each shows. @type {[LaneName, string | null][]} */
export const CALL_LANES = [
  ["prosody", "voice"],
  ["speaker", "speaker"],
  ["vision", "sight"],
  ["vote", null],
  ["tool", null],
];

/** Types of the reports that lanes show. Words are in the transcript. */
const PERCEIVED = new Set(["ProsodyPayload", "DiarPayload", "VisionPayload"]);

/**
 * Return true for an event of a session that a lane may show.
 *
 * @param {SessionEvent} event
 */
export function isForLanes(event) {
  if (event.kind === "annotation") return PERCEIVED.has(event.payload.body.type);
  return event.kind === "tool_call" || event.kind === "tool_result";
}

/**
 * Return the stretches in which both sides spoke.
 *
 * @param {Block[]} blocks in order
 * @returns {Overlap[]}
 */
export function overlapsOf(blocks) {
  /** @type {Overlap[]} */
  const found = [];
  const [callers, bots] = ["caller", "bot"].map((side) => blocks.filter((each) => each.side === side));
  let first = 0;
  for (const caller of callers) {
    while (bots[first] && bots[first].end_ms <= caller.start_ms) first += 1;
    for (let place = first; bots[place] && bots[place].start_ms < caller.end_ms; place += 1) {
      const start_ms = Math.max(caller.start_ms, bots[place].start_ms);
      const end_ms = Math.min(caller.end_ms, bots[place].end_ms);
      if (end_ms > start_ms) found.push({ start_ms, end_ms });
    }
  }
  return found;
}

/**
 * Return the replies that were cut, each with its reason, what was not heard, and when its rest was said after all. Without a reason
 * the caller left or the call ended.
 *
 * @param {RecordingEvent[]} events
 * @returns {CutReply[]}
 */
export function cutsOf(events) {
  /** @type {CutReply[]} */
  const cuts = [];
  /** @type {CutReply | null} a cut whose reply has not been reported yet */
  let open = null;
  for (const event of events) {
    if (event.event === "ReplyCut") {
      open = { at_ms: event.at_ms, reason: event.reason ?? "", voice_ms: event.voice_ms ?? null, unheard: "", resumed_ms: null };
      cuts.push(open);
    }
    if (event.event === "ReplyFinished" && event.truncated) {
      const cut = open ?? { at_ms: event.at_ms, reason: "", voice_ms: null, unheard: "", resumed_ms: null };
      cut.unheard = event.unheard ?? "";
      if (!open) cuts.push(cut);
      open = null;
    }
    if (event.event === "ReplyStarted") open = null;
    const last = cuts.at(-1);
    if (event.event === "ReplyResumed" && last && last.resumed_ms === null) last.resumed_ms = event.at_ms;
  }
  return cuts;
}

/**
 * Return the answers with their latencies, in order. Recordings of earlier releases have the stages only where the caller's page
 * measured, and else the whole latency.
 *
 * @param {RecordingEvent[]} events
 * @param {Caption[]} captions
 * @returns {Answer[]}
 */
export function answersOf(events, captions) {
  /** @type {Answer[]} */
  const answers = [];
  const isMeasured = events.some((event) => event.event === "AnswerHeard");
  for (const event of events) {
    if (event.event === "AnswerHeard") {
      answers.push({ at_ms: event.at_ms, total_ms: event.latency_ms ?? 0, stages: event.stages_ms ?? [], heard_ms: null });
    }
    if (event.event !== "LatencyHeard" || event.heard_ms === undefined) continue;
    const last = answers.at(-1);
    if (isMeasured) {
      if (last && last.heard_ms === null) last.heard_ms = event.heard_ms;
    } else {
      answers.push({ at_ms: event.at_ms, total_ms: event.server_ms ?? 0, stages: event.stages_ms ?? [], heard_ms: event.heard_ms });
    }
  }
  if (answers.length) return answers;
  return captions.flatMap(({ at_ms, latency_ms }) =>
    latency_ms === null ? [] : [{ at_ms, total_ms: latency_ms, stages: /** @type {[string, number][]} */ ([]), heard_ms: null }],
  );
}

/**
 * Return the names of the stages of all answers, in order of their first place.
 *
 * @param {Answer[]} answers
 */
export function stageNames(answers) {
  return [...new Set(answers.flatMap(({ stages }) => stages.map(([name]) => name)))];
}

/**
 * Return the votes of a full-duplex engine, one item for each run of the same vote.
 *
 * @param {RecordingEvent[]} events
 * @param {number} duration_ms
 * @returns {LaneItem[]}
 */
export function votesOf(events, duration_ms) {
  const changes = events.filter((event) => event.event === "VoteChanged" && event.vote);
  return changes.map((event, place) => ({
    lane: "vote",
    start_ms: event.at_ms,
    end_ms: changes[place + 1]?.at_ms ?? Math.max(duration_ms, event.at_ms),
    text: event.vote ?? "",
    kind: event.vote ?? "",
  }));
}

/**
 * Return the calls of tools within a recorded call, each from its beginning to its result.
 *
 * @param {SessionEvent[]} session
 * @param {RecordingDetail} call
 * @returns {LaneItem[]}
 */
export function toolsOf(session, call) {
  /** @type {Map<string, LaneItem>} */
  const tools = new Map();
  for (const event of session) {
    if (event.kind !== "tool_call" && event.kind !== "tool_result") continue;
    const id = String(event.payload.call_id);
    const at_ms = (event.event_us - call.began_us) / 1_000;
    const begun = tools.get(id);
    if (event.kind === "tool_call") {
      if (at_ms < 0 || at_ms > call.duration_ms) continue;
      tools.set(id, { lane: "tool", start_ms: at_ms, end_ms: at_ms, text: String(event.payload.name), kind: "open" });
    } else if (begun) {
      begun.end_ms = Math.max(begun.start_ms, at_ms);
      begun.kind = String(event.payload.outcome ?? "done");
    }
  }
  const found = [...tools.values()];
  for (const event of call.events) {
    if (event.event !== "ToolsCalled") continue;
    if (found.some((each) => Math.abs(each.start_ms - event.at_ms) < SAME_CALL_MS)) continue;
    found.push({ lane: "tool", start_ms: event.at_ms, end_ms: event.at_ms + SHOWN_MS, text: "", kind: "unnamed" });
  }
  return found.sort((one, other) => one.start_ms - other.start_ms);
}

/**
 * Return what was perceived of the caller within a recorded call. A revision replaces all of the report before it.
 *
 * @param {SessionEvent[]} session
 * @param {RecordingDetail} call
 * @returns {LaneItem[]}
 */
export function perceivedOf(session, call) {
  /** @type {Map<string, LaneItem[]>} */
  const found = new Map();
  for (const event of session) {
    if (event.kind !== "annotation") continue;
    const key = `${event.payload.call_id}/${event.payload.statement}`;
    const items = marksOf(event.event_us, event.payload).flatMap((mark) => {
      const [lane] = CALL_LANES.find(([, name]) => name === mark.lane) ?? [];
      const [start_ms, end_ms] = [mark.start_us, mark.end_us].map((us) => (us - call.began_us) / 1_000);
      if (lane === undefined || mark.plain || end_ms < 0 || start_ms > call.duration_ms) return [];
      return [{ lane, start_ms: Math.max(0, start_ms), end_ms, text: mark.text, kind: mark.late ? "late" : "" }];
    });
    found.delete(key);
    if (items.length) found.set(key, items);
  }
  return [...found.values()].flat().sort((one, other) => one.start_ms - other.start_ms);
}

/**
 * Return the lines of a transcript with the pictures that the caller's turns had. A picture belongs to the turn that was the last one
 * when it was committed; one without a turn before it is a line of its own.
 *
 * @param {Caption[]} captions in order
 * @param {TurnImage[]} images in order
 * @returns {(Caption & { images: TurnImage[] })[]}
 */
export function withImages(captions, images) {
  const lines = captions.map((caption) => ({ ...caption, images: /** @type {TurnImage[]} */ ([]) }));
  for (const image of images) {
    const line = lines.findLast(({ side, at_ms }) => side === "caller" && at_ms <= image.at_ms);
    if (line) line.images.push(image);
    else lines.unshift({ side: "caller", at_ms: image.at_ms, text: "", unheard: "", latency_ms: null, images: [image] });
  }
  return lines;
}
