import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal, until } from "./support/page.js";

const { Response } = globalThis;
const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const CALL = {
  call_id: "c",
  began_us: 0,
  duration_ms: 60_000,
  events: [
    { at_ms: 100, event: "CallerJoined" },
    { at_ms: 200, event: "ReplyStarted", reply_id: "a" },
    { at_ms: 900, event: "VoiceStarted", voiced_ms: 100 },
    { at_ms: 1_200, event: "ReplyCut", reason: "stop_word", voice_ms: 320 },
    { at_ms: 1_200, event: "ReplyFinished", reply_id: "a", truncated: true, text: "Call", unheard: "the hotline." },
    { at_ms: 1_700, event: "VoiceEnded", silence_ms: 100 },
    { at_ms: 2_400, event: "AnswerHeard", latency_ms: 800, stages_ms: [["stt_final", 300], ["own_stage", 500]] },
    { at_ms: 2_600, event: "LatencyHeard", heard_ms: 900, server_ms: 800 },
    { at_ms: 5_000, event: "ToolsCalled" },
  ],
  pictures: [],
  images: [],
  peaks: null,
};

async function view() {
  const window = openPage({ file: "session.html", address: `http://localhost:7860/s/${ID}` });
  setGlobal("matchMedia", () => ({ addEventListener: () => {} }));
  setGlobal("window", window);
  setGlobal("getComputedStyle", (node) => window.getComputedStyle(node));
  const sought = [];
  const seek = (at_ms) => sought.push(at_ms);
  const open = (fold) => {
    fold.open = true;
    fold.dispatchEvent(new window.Event("toggle"));
  };
  return { root: document.querySelector('[data-role="call-folds"]'), seek, sought, open };
}

test("the legend counts overlaps and cuts, and the list says why and what was not heard", async () => {
  const { root, seek, sought, open } = await view();
  const { CallMoments } = await import("../../web/shared/call_moments.js");
  const moments = new CallMoments(root, seek);
  moments.show(CALL);
  const legend = [...root.querySelectorAll(".legend span")].map((item) => item.textContent);
  assert.deepEqual(legend, ["Both speak: 1, 0.4 s in all", "Cut off: 1"]);
  const fold = root.querySelector('[data-role="moments"]');
  assert.equal(fold.querySelectorAll("li").length, 0, "filled before it is opened");
  open(fold);
  const rows = [...fold.querySelectorAll("li")].map((item) => item.textContent);
  assert.deepEqual(rows, [
    "0:00 Both speak for 400 ms.",
    "0:01 The reply is cut off: a word to stop it, after 320 ms of voice. Not heard: the hotline.",
  ]);
  fold.querySelectorAll("button")[1].click();
  assert.deepEqual(sought, [1_200]);
  moments.show({ ...CALL, events: [] });
  assert.equal(fold.hidden, true);
});

test("each answer is a bar with its stages and a row with their numbers", async () => {
  const { root, seek, sought, open } = await view();
  const { LatencyBars } = await import("../../web/shared/latency_bars.js");
  const bars = new LatencyBars(root, seek);
  bars.show(CALL);
  const fold = root.querySelector('[data-role="latencies"]');
  assert.equal(fold.querySelector("table"), null, "drawn before it is opened");
  open(fold);
  const heads = [...fold.querySelectorAll("thead th")].map((cell) => cell.textContent);
  assert.deepEqual(heads, ["Answer", "Stages", "At the server", "At the ear", "last words recognised", "own stage"]);
  const cells = [...fold.querySelectorAll("tbody td:not(.bar)")].map((cell) => cell.textContent);
  assert.deepEqual(cells, ["800 ms", "900 ms", "300 ms", "500 ms"]);
  const widths = [...fold.querySelectorAll(".bar i")].map((piece) => piece.style.inlineSize);
  assert.deepEqual(widths, ["33.33%", "55.56%"]);
  fold.querySelector("tbody button").click();
  assert.deepEqual(sought, [2_400]);
});

test("lanes have a list of the same items, and say what is on at the place of the playback", async () => {
  const { root, seek, sought, open } = await view();
  const { CallLanes } = await import("../../web/shared/call_lanes.js");
  const lanes = new CallLanes(root, seek);
  lanes.show(CALL);
  lanes.take({ kind: "tool_call", event_us: 5_000_000, payload: { call_id: "1", name: "hours" } });
  lanes.take({ kind: "tool_result", event_us: 5_320_000, payload: { call_id: "1", name: "hours", outcome: "done" } });
  lanes.move(5_100);
  // Events of the past come in one piece, and are shown together.
  await until(() => root.querySelector(".now").textContent === "Tools: hours, 320 ms, done");
  open(root.querySelector("details details"));
  assert.deepEqual([...root.querySelectorAll("li")].map((item) => item.textContent), ["0:05 Tools: hours, 320 ms, done"]);
  root.querySelector("li button").click();
  assert.deepEqual(sought, [5_000]);
});

const DONE = {
  call_id: "c",
  state: "done",
  at_ms: 60_000,
  duration_ms: 60_000,
  reason: "",
  comparison: {
    notes: ["typed turns were not replayed"],
    median: { waited_ms: null, latency_ms: { then: 800, now: 640 } },
    cost: { then: null, now: 0.0125, currency: "USD" },
    turns: [
      {
        differences: ["answer", "words"],
        is_decided_alike: false,
        reasons: ["0:01.24 only now: the reply ends"],
        then: { at_ms: 1_500, text: "a card", waited_ms: 600, heard: "Call us.", unheard: "", latency_ms: 800, cost: null },
        now: { at_ms: 1_510, text: "a card", waited_ms: 600, heard: "Write", unheard: "to us.", latency_ms: 640, cost: 0.0125 },
      },
    ],
  },
};

test("the operator begins a replay, and reads what it changed", async () => {
  const { root, seek, sought } = await view();
  const path = `/api/sessions/${ID}/recordings/c/replays`;
  const answers = {
    "GET /api/admin/session": [200, { is_operator: true }],
    [`GET ${path}`]: [200, { ...DONE, state: "none", comparison: null }],
  };
  setGlobal("fetch", async (address, { method }) => {
    const [status, body] = answers[`${method} ${address}`];
    return new Response(JSON.stringify(body), { status });
  });
  const { Replays } = await import("../../web/shared/replays.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const replays = new Replays(new SessionApi(ID), root, seek);
  await replays.show(CALL);
  const fold = root.querySelector('[data-role="replays"]');
  const [begin, cancel] = fold.querySelectorAll("button");
  assert.deepEqual([fold.hidden, begin.disabled, cancel.hidden], [false, false, true]);
  answers[`POST ${path}`] = [202, {}];
  answers[`GET ${path}`] = [200, DONE];
  begin.click();
  await until(() => fold.querySelector("tbody tr"));
  const row = fold.querySelector("tbody tr");
  assert.equal(row.className, "decided");
  assert.deepEqual(
    [...row.querySelectorAll("td")].map((cell) => cell.textContent),
    [
      "a card",
      "then: Call us.now: Write to us.",
      "600 ms",
      "then: 800 msnow: 640 ms",
      "then: –now: 0.0125",
      "the answer, the caller's words0:01.24 only now: the reply ends",
    ],
  );
  const text = fold.querySelector('[data-role="replay-result"] p').textContent;
  assert.equal(
    text,
    "Turns: 1. Decided otherwise: 1. Other words of the caller: 0. Latency 800 ms then, 640 ms now (median). Cost – then, 0.0125 USD now.",
  );
  assert.equal(fold.querySelectorAll('[data-role="replay-result"] p')[1].textContent, "Typed turns were not replayed.");
  assert.ok(fold.querySelector("a").href.endsWith(`${path}/page`));
  row.querySelector("button").click();
  assert.deepEqual(sought, [1_600], "from the caller's arrival");
});

test("a refused replay says why, and others see nothing of replays", async () => {
  const { root, seek } = await view();
  let isOperator = true;
  setGlobal("fetch", async (path, { method }) => {
    if (path === "/api/admin/session") return new Response(JSON.stringify({ is_operator: isOperator }));
    if (method === "GET") return new Response(JSON.stringify({ ...DONE, state: "none", comparison: null }));
    return new Response(JSON.stringify({ error: "calls need the machine" }), { status: 503 });
  });
  const { Replays } = await import("../../web/shared/replays.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const replays = new Replays(new SessionApi(ID), root, seek);
  await replays.show(CALL);
  root.querySelector('[data-role="replay-begin"]').click();
  const status = root.querySelector('[data-role="replay-status"]');
  await until(() => status.textContent);
  assert.match(status.textContent, /calls need the machine/);
  isOperator = false;
  root.replaceChildren();
  await new Replays(new SessionApi(ID), root, seek).show(CALL);
  assert.equal(root.querySelector('[data-role="replays"]').hidden, true);
});

test("a replay that is looked at twice at the same time is followed once", async (context) => {
  const { root, seek } = await view();
  let [looks, state] = [0, "replaying"];
  setGlobal("fetch", async (path) => {
    if (path === "/api/admin/session") return Response.json({ is_operator: true });
    looks += 1;
    return Response.json({ ...DONE, state, comparison: null });
  });
  const { Replays } = await import("../../web/shared/replays.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const replays = new Replays(new SessionApi(ID), root, seek);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  await Promise.all([replays.show(CALL), replays.show(CALL)]);
  assert.equal(looks, 2);
  state = "done";
  context.mock.timers.tick(1_500);
  const status = root.querySelector('[data-role="replay-status"]');
  while (status.textContent !== "The replay is over.") await new Promise((resolve) => setImmediate(resolve));
  assert.equal(looks, 3);
});

test("what is shown is written again in another language", async () => {
  const { root, seek, open } = await view();
  const [{ CallMoments }, { LatencyBars }, { CallLanes }] = await Promise.all([
    import("../../web/shared/call_moments.js"),
    import("../../web/shared/latency_bars.js"),
    import("../../web/shared/call_lanes.js"),
  ]);
  const views = [new CallMoments(root, seek), new LatencyBars(root, seek), new CallLanes(root, seek)];
  for (const each of views) each.show(CALL);
  open(root.querySelector('[data-role="latencies"]'));
  document.documentElement.dataset.translated = "";
  globalThis.localStorage.setItem("parley.language", "de");
  for (const each of views) each.draw();
  const legend = [...root.querySelectorAll(".legend span")].map((item) => item.textContent);
  assert.deepEqual(legend, ["Beide sprechen: 1, zusammen 0.4 s", "Abgebrochen: 1"]);
  assert.equal(root.querySelector("thead th").textContent, "Antwort");
  assert.equal(root.querySelector('[data-lane="tool"] b').textContent, "Werkzeuge");
});

test("the lines of a transcript are written again in another language", async () => {
  await view();
  const detail = { ...CALL, events: [...CALL.events, { at_ms: 3_000, event: "ReplyFinished", reply_id: "b", text: "At ten." }] };
  const summary = { call_id: "c", began_us: 0, duration_ms: 60_000, transport: "webrtc", is_over: true, has_replay: true, pictures: 0 };
  setGlobal("fetch", async (path) => Response.json(String(path).endsWith("/recordings") ? { calls: [summary] } : detail));
  const { Recordings } = await import("../../web/shared/recordings.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const fold = document.querySelector('[data-role="recordings"]');
  fold.open = true;
  const recordings = new Recordings(new SessionApi(ID), fold);
  const lines = () => [...fold.querySelectorAll('[data-role="captions"] > li')];
  await until(() => lines().length);
  const [count, label] = [lines().length, () => lines()[0].querySelector("button").ariaLabel];
  assert.match(label(), /^Play from /);
  document.documentElement.dataset.translated = "";
  globalThis.localStorage.setItem("parley.language", "de");
  recordings.show();
  assert.deepEqual([lines().length, label()], [count, "Ab 0:00 abspielen"]);
});

test("the recording that the caller uploaded is offered for the call that has one", async () => {
  await view();
  const call = { began_us: 0, duration_ms: 60_000, transport: "duplex_ws", is_over: true, has_replay: true, has_film: false, pictures: 0 };
  const calls = [{ ...call, call_id: "b", client_replay: "" }, { ...call, call_id: "c", client_replay: "frontend_replay.webm" }];
  setGlobal("fetch", async (path) => Response.json(String(path).endsWith("/recordings") ? { calls } : CALL));
  const { Recordings } = await import("../../web/shared/recordings.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const fold = document.querySelector('[data-role="recordings"]');
  fold.open = true;
  assert.ok(new Recordings(new SessionApi(ID), fold));
  const own = fold.querySelector('[data-role="client-replay"]');
  await until(() => !own.hidden);
  assert.equal(own.getAttribute("href"), `/api/sessions/${ID}/recordings/c/client-replay`);
  assert.equal(own.download, "c-frontend_replay.webm");
  fold.querySelector('[data-role="recorded"] button').click();
  await until(() => own.hidden);
});

test("a timeline without events says so in another language", async () => {
  const { open } = await view();
  setGlobal("fetch", async () => Response.json({ events: [], after: null }));
  const { Timeline } = await import("../../web/shared/timeline.js");
  const { SessionApi } = await import("../../web/shared/session_api.js");
  const fold = document.querySelector('[data-role="timeline"]');
  const timeline = new Timeline(new SessionApi(ID), fold);
  timeline.draw();
  const notice = fold.querySelector('[data-role="events-notice"]');
  assert.equal(notice.textContent, "", "it has not been read");
  open(fold);
  await until(() => notice.textContent);
  assert.equal(notice.textContent, "Nothing has happened yet.");
  document.documentElement.dataset.translated = "";
  globalThis.localStorage.setItem("parley.language", "de");
  timeline.draw();
  assert.equal(notice.textContent, "Es ist noch nichts geschehen.");
});
