import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocket as Socket, WebSocketServer } from "ws";
import { openPage, setGlobal, until } from "./support/page.js";
import { DuplexSocket, decode, encode } from "../../web/shared/duplex_socket.js";

/** A browser's socket fails without a listener too; that of the library would throw. */
class BrowserSocket extends Socket {
  constructor(...given) {
    super(...given);
    this.on("error", () => {});
  }
}
setGlobal("WebSocket", BrowserSocket);

/** A server of `/ws/duplex/ID`, and a conversation with it whose callbacks are recorded as `[name, ...values]`. */
async function conversation(t, { prompt = "", voice = "", voiceOnly = true, fragment = "", session = "", link = {} } = {}) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  openPage({ address: `http://127.0.0.1:${server.address().port}/omni${fragment}` });
  const calls = [];
  const record = (name) => (...values) => calls.push([name, ...values]);
  const socket = new DuplexSocket({
    queued: record("queued"),
    prepared: record("prepared"),
    result: record("result"),
    held: record("held"),
    error: record("error"),
    end: record("end"),
  }, link);
  const connected = once(server, "connection");
  socket.open({ prompt, voice, voiceOnly, session });
  const [peer, request] = await connected;
  const received = [];
  peer.on("message", (data) => received.push(JSON.parse(data)));
  await until(() => received.length);
  return {
    calls,
    peer,
    received,
    request,
    socket,
    say: (message) => peer.send(JSON.stringify(message)),
    called: (name) => until(() => calls.some(([each]) => each === name)),
    count: (name) => calls.filter(([each]) => each === name).length,
  };
}

const PREPARED = { type: "prepared", unit_ms: 1_000 };
const RESULT = { type: "result", is_listen: true, text: "", audio_data: "" };

test("samples survive being encoded and decoded", () => {
  const samples = Float32Array.from({ length: 10_000 }, (_, at) => Math.sin(at));
  assert.deepEqual(decode(encode(samples)), samples);
});

test("a part of a longer buffer is encoded, not the whole buffer", () => {
  const samples = new Float32Array([1, 2, 3, 4]);
  assert.deepEqual([...decode(encode(samples.subarray(1, 3)))], [2, 3]);
});

test("samples are encoded as little-endian bytes", () => {
  assert.equal(encode(new Float32Array([1])), Buffer.from([0, 0, 0x80, 0x3f]).toString("base64"));
});

test("a conversation is prepared with the prompt, at an address that names its kind", async (t) => {
  const voice = await conversation(t, { prompt: "Be brief." });
  assert.deepEqual(voice.received, [{ type: "prepare", system_prompt: "Be brief." }]);
  assert.match(voice.request.url, /^\/ws\/duplex\/adx_[a-z0-9]+$/);
  const pictures = await conversation(t, { voiceOnly: false });
  assert.deepEqual(pictures.received, [{ type: "prepare" }]);
  assert.match(pictures.request.url, /^\/ws\/duplex\/omni_/);
});

test("a reference voice is that of the language model and of the vocoder", async (t) => {
  const { received } = await conversation(t, { voice: "AAAA" });
  assert.deepEqual(received, [{ type: "prepare", ref_audio_base64: "AAAA", tts_ref_audio_base64: "AAAA" }]);
});

test("the token of the address is offered as a subprotocol, and the next one is kept", async (t) => {
  const { request, say, called } = await conversation(t, { fragment: "#token=first" });
  assert.equal(request.headers["sec-websocket-protocol"], "parley,parley.token.first");
  say({ ...PREPARED, next_token: "second" });
  await called("prepared");
  assert.equal(sessionStorage.getItem("parley.token"), "second");
});

test("a chunk carries its samples, and pictures and the order to listen only where they are given", async (t) => {
  const { received, socket } = await conversation(t);
  socket.chunk(new Float32Array([0.5]));
  socket.chunk(new Float32Array([0.5]), { frames: ["picture"], forceListen: true });
  await until(() => received.length === 3);
  const chunk = { type: "audio_chunk", audio_base64: encode(new Float32Array([0.5])) };
  assert.deepEqual(received.slice(1), [chunk, { ...chunk, frame_base64_list: ["picture"], force_listen: true }]);
});

test("places in the queue are reported, and its end as place 0", async (t) => {
  const { calls, say } = await conversation(t);
  say({ type: "queued", position: 2, estimated_wait_s: 30 });
  say({ type: "queue_update", position: 1, estimated_wait_s: 10 });
  say({ type: "queue_done" });
  await until(() => calls.length === 3);
  assert.deepEqual(calls.map(([name, place]) => [name, place.position]), [["queued", 2], ["queued", 1], ["queued", 0]]);
});

/** Send a chunk, wait, and return the time since the sending of an earlier chunk when its result has arrived. */
async function latencyAfter(t, answer) {
  const { calls, received, say, socket, called } = await conversation(t);
  say(PREPARED);
  await called("prepared");
  const firstAt = performance.now();
  socket.chunk(new Float32Array(1));
  await until(() => received.length === 2);
  await answer({ say, called });
  await new Promise((resolve) => setTimeout(resolve, 50));
  socket.chunk(new Float32Array(1));
  await until(() => received.length === 3);
  const count = calls.length;
  say(RESULT);
  await until(() => calls.length > count);
  const [name, , answeredMs] = calls.at(-1);
  assert.equal(name, "result");
  return { answeredMs, sinceFirstMs: performance.now() - firstAt };
}

for (const [title, message, name] of [
  ["a result is measured from its own chunk", RESULT, "result"],
  ["a chunk that came too early is answered by the error", { type: "error", error: "early", code: "not_ready" }, "error"],
  ["a chunk during a pause is answered by the error", { type: "error", error: "paused", code: "invalid_state" }, "error"],
  ["chunks of a failed engine are answered by nothing else", { type: "error", error: "failed", code: "inference_error" }, "error"],
  ["chunks before a pause are answered by nothing else", { type: "paused", timeout: 60 }, "held"],
]) {
  test(title, async (t) => {
    const { answeredMs, sinceFirstMs } = await latencyAfter(t, async ({ say, called }) => {
      say(message);
      await called(name);
    });
    assert.ok(answeredMs <= sinceFirstMs - 45, `${answeredMs} ms of ${sinceFirstMs} ms`);
  });
}

test("another error does not count as the answer to a chunk", async (t) => {
  const { answeredMs } = await latencyAfter(t, async ({ say, called }) => {
    say({ type: "error", error: "the prompt is too long", code: "invalid_payload" });
    await called("error");
  });
  assert.ok(answeredMs >= 45, `${answeredMs} ms`);
});

test("pausing and resuming are requested and reported", async (t) => {
  const { calls, received, say, socket } = await conversation(t);
  socket.pause();
  socket.resume();
  await until(() => received.length === 3);
  assert.deepEqual(received.slice(1), [{ type: "pause" }, { type: "resume" }]);
  say({ type: "paused", timeout: 60 });
  say({ type: "resumed" });
  await until(() => calls.length === 2);
  assert.deepEqual(calls, [["held", "paused"], ["held", "resumed"]]);
});

test("closing says goodbye, ends the conversation once and sends nothing more", async (t) => {
  const { calls, peer, received, socket } = await conversation(t);
  socket.close();
  socket.close();
  socket.chunk(new Float32Array(1));
  assert.deepEqual(calls, [["end", null]]);
  await once(peer, "close");
  assert.deepEqual(received.slice(1), [{ type: "stop" }]);
  assert.deepEqual(calls, [["end", null]]);
});

test("the reason of a server that closes is the reason of the end", async (t) => {
  const { calls, peer, called } = await conversation(t);
  peer.close(1013, "Queue full");
  await called("end");
  assert.deepEqual(calls, [["end", { code: "queue_full", text: "Queue full" }]]);
});

test("a connection that breaks off ends the conversation", async (t) => {
  const { calls, peer, called } = await conversation(t);
  peer.terminate();
  await called("end");
  assert.deepEqual(calls, [["end", { code: "lost", text: "" }]]);
});

test("an error before the end is its reason, and an earlier one is not", async (t) => {
  const failed = { code: "no_worker", text: "no worker is free", param: "" };
  const { calls, peer, say, called } = await conversation(t);
  say({ type: "error", error: failed.text, code: failed.code });
  peer.close(1013, "no_worker");
  await called("end");
  assert.deepEqual(calls, [["error", failed], ["end", failed]]);
  const later = await conversation(t);
  later.say({ type: "error", error: "a picture is too large", code: "invalid_payload", param: "frame_base64_list" });
  later.say(RESULT);
  later.peer.close(1012, "the server is stopping");
  await later.called("end");
  assert.deepEqual(later.calls.at(-1), ["end", { code: "the server is stopping", text: "the server is stopping" }]);
});

test("a socket that is refused before it opens ends without a reason of the server", async (t) => {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, verifyClient: () => false });
  await once(server, "listening");
  t.after(() => server.close());
  openPage({ address: `http://127.0.0.1:${server.address().port}/omni` });
  const ends = [];
  const ignored = () => {};
  new DuplexSocket({
    queued: ignored, prepared: ignored, result: ignored, held: ignored, error: ignored, end: (reason) => ends.push(reason),
  }).open({ prompt: "", voiceOnly: true });
  await until(() => ends.length);
  assert.deepEqual(ends, [{ code: "refused", text: "" }]);
});

test("a timeout of the server ends the conversation once", async (t) => {
  const { calls, say, called, peer } = await conversation(t);
  say({ type: "timeout", reason: "the pause was too long" });
  say({ ...RESULT });
  peer.close(1000, "timeout");
  await called("end");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(calls, [["end", { code: "timeout", text: "the pause was too long" }]]);
});

test("a server that never prepares the conversation ends it after 15 seconds", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { calls } = await conversationWithoutTimers(t);
  t.mock.timers.tick(14_999);
  assert.deepEqual(calls, []);
  t.mock.timers.tick(1);
  assert.deepEqual(calls, [["end", { code: "silent", text: "" }]]);
});

/** As `conversation`, where waiting may not use the timers. */
async function conversationWithoutTimers(t) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  t.after(() => {
    for (const client of server.clients) client.terminate();
    server.close();
  });
  openPage({ address: `http://127.0.0.1:${server.address().port}/omni` });
  const calls = [];
  const ignored = () => {};
  const end = (reason) => calls.push(["end", reason]);
  const on = { queued: ignored, prepared: ignored, result: ignored, held: ignored, error: ignored, end };
  const socket = new DuplexSocket(on);
  socket.open({ prompt: "", voiceOnly: true });
  const [peer] = await once(server, "connection");
  await once(peer, "message");
  return { calls, peer };
}

test("typed text is a message of its own", async (t) => {
  const { received, socket } = await conversation(t);
  assert.equal(socket.type("When are you open?"), true);
  await until(() => received.length === 2);
  assert.deepEqual(received[1], { type: "text", text: "When are you open?" });
  socket.close();
  assert.equal(socket.type("Too late"), false);
});

test("the latency of an answer is reported", async (t) => {
  const { received, socket } = await conversation(t);
  const heard = { heard_ms: 900, round_trip_ms: 0, jitter_buffer_ms: 0, output_ms: 12 };
  socket.report(heard);
  await until(() => received.length === 2);
  assert.deepEqual(received[1], { type: "latency", ...heard });
  socket.close();
});

test("a conversation that goes on names its session in the address", async (t) => {
  const { request } = await conversation(t, { session: "a b" });
  assert.match(request.url, /^\/ws\/duplex\/adx_\w+\?session=a\+b&reconnect=true$/);
});

test("a connection is given up when an answer is overdue and the server does not answer otherwise", async (t) => {
  let asked = 0;
  const answers = async () => (asked += 1) < 2;
  const { calls, socket, called } = await conversation(t, { link: { answers, overdueMs: 100 } });
  socket.chunk(new Float32Array(1));
  await called("end");
  assert.deepEqual([calls, asked], [[["end", { code: "lost", text: "" }]], 2]);
});

test("a model that is slow is waited for, but not a connection that brings nothing for long", async (t) => {
  const { calls, socket, called } = await conversation(t, { link: { answers: async () => true, overdueMs: 10, deadMs: 1_400 } });
  const beganAt = performance.now();
  socket.chunk(new Float32Array(1));
  await called("end");
  assert.deepEqual(calls, [["end", { code: "lost", text: "" }]]);
  assert.ok(performance.now() - beganAt > 1_400);
});

test("a connection whose chunks have all their answers is not looked at", async (t) => {
  let asked = 0;
  const answers = async () => Boolean((asked += 1));
  const { socket, say, called } = await conversation(t, { link: { answers, overdueMs: 10 } });
  socket.chunk(new Float32Array(1));
  say(RESULT);
  await called("result");
  await new Promise((resolve) => setTimeout(resolve, 700));
  assert.equal(asked, 0);
});
