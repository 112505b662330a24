import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocket as Socket, WebSocketServer } from "ws";
import { openPage, setGlobal, until } from "./support/page.js";

/** Node of the browser's audio, which this page only connects. */
class AudioPart {
  gain = { value: 1 };
  fftSize = 0;
  stream = { getAudioTracks: () => [] };
  port = { postMessage: () => {}, close: () => {}, onmessage: null };
  connect(next) {
    return next;
  }
  disconnect() {}
  start() {}
  getFloatTimeDomainData() {}
}

class Worklet extends AudioPart {
  static made = [];
  constructor(_context, name) {
    super();
    Worklet.made.push([name, this]);
  }
}

class Context extends EventTarget {
  state = "running";
  currentTime = 0;
  destination = new AudioPart();
  audioWorklet = { addModule: async () => {} };
  resume = async () => {};
  close = async () => {};
  createMediaStreamSource = () => new AudioPart();
  createMediaStreamDestination = () => new AudioPart();
  createAnalyser = () => new AudioPart();
}

/** A browser's socket fails without a listener too; that of the library would throw. */
class BrowserSocket extends Socket {
  constructor(...given) {
    super(...given);
    this.on("error", () => {});
  }
}

openPage({ file: "omni.html" });
for (const [name, value] of Object.entries({
  AudioContext: Context,
  AudioWorkletNode: Worklet,
  GainNode: AudioPart,
  ConstantSourceNode: AudioPart,
  WebSocket: BrowserSocket,
  window: globalThis,
  addEventListener: () => {},
})) setGlobal(name, value);
// They look at the page when they are loaded.
const { CallSound } = await import("../../web/shared/call_sound.js");
const { Conversation } = await import("../../web/shared/omni_conversation.js");
const { Devices } = await import("../../web/shared/devices.js");
const { PushToTalk } = await import("../../web/shared/push_to_talk.js");
const { SoundSettings } = await import("../../web/shared/sound_settings.js");
const { NodeVoice } = await import("../../web/shared/voice_output.js");

/**
 * A conversation with a server of `/ws/duplex/ID`; its callbacks are recorded by name.
 *
 * The server prepares as many connections as `prepared` says. `onLost` is called when one is lost.
 */
async function conversation(t, { prepared = Infinity, onLost = () => {} } = {}) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  const connections = [];
  server.on("connection", (peer, { url }) => {
    const received = [];
    connections.push({ peer, url, received });
    const isPrepared = connections.length <= prepared;
    peer.on("message", (data) => {
      const message = JSON.parse(data);
      received.push(message);
      const answers = {
        prepare: { type: "prepared", session_id: "s1", unit_ms: 1_000, takes: ["text"] },
        pause: { type: "paused" },
        audio_chunk: { type: "result", is_listen: true, text: "", audio_data: "" },
      };
      if (answers[message.type] && isPrepared) peer.send(JSON.stringify(answers[message.type]));
    });
  });
  openPage({ file: "omni.html", address: `http://127.0.0.1:${server.address().port}/omni` });
  const button = document.querySelector('[data-role="microphone"]');
  const output = new NodeVoice();
  const sound = new CallSound(
    {
      ...{ raw: true, devices: new Devices(() => {}, null), settings: new SoundSettings(), output },
      push: new PushToTalk(button, { isOn: false, isReady: () => false, changed: () => {} }),
    },
    { changed: () => {}, say: () => {}, heard: () => {} },
  );
  const calls = [];
  const names = ["queued", "ready", "lost", "result", "held", "fileProgress", "fileEnd", "error", "end"];
  const on = Object.fromEntries(names.map((name) => [name, (...values) => calls.push([name, ...values])]));
  sound.begin();
  const lost = (reason) => {
    calls.push(["lost", reason]);
    onLost(made);
  };
  const made = new Conversation({ ...on, lost, frames: () => [] }, { sound, output });
  sound.use(made);
  t.after(() => {
    made.close();
    sound.close();
    for (const client of server.clients) client.terminate();
    server.close();
  });
  await made.open({ prompt: "Be brief.", voice: "", sees: false, file: null });
  const count = (name) => calls.filter(([each]) => each === name).length;
  await until(() => count("ready") === 1);
  const [, capture] = Worklet.made.findLast(([name]) => name === "capture");
  const address = `ws://127.0.0.1:${server.address().port}`;
  return { address, calls, capture, connections, count, made };
}

const chunk = ({ capture }) => capture.port.onmessage({ data: new Float32Array(16_000) });

test("a conversation whose connection is lost goes on in its session, prepared as before", async (t) => {
  const talk = await conversation(t);
  chunk(talk);
  await until(() => talk.count("result") === 1);
  talk.connections[0].peer.terminate();
  await until(() => talk.count("ready") === 2);
  assert.deepEqual([talk.count("lost"), talk.count("end"), talk.connections.length], [1, 0, 2]);
  const [, again] = talk.connections;
  assert.match(again.url, /\?session=s1&reconnect=true$/);
  assert.deepEqual(again.received[0], { type: "prepare", system_prompt: "Be brief." });
  chunk(talk);
  await until(() => talk.count("result") === 2);
  // And once more.
  again.peer.terminate();
  await until(() => talk.count("ready") === 3);
  assert.equal(talk.connections.length, 3);
});

test("a pause outlasts the connection", async (t) => {
  const talk = await conversation(t);
  talk.made.pause();
  await until(() => talk.count("held") === 1);
  talk.connections[0].peer.terminate();
  await until(() => talk.count("held") === 2);
  assert.deepEqual(talk.connections[1].received.map(({ type }) => type), ["prepare", "pause"]);
});

test("who hangs up during an attempt to go on is called back by no other", async (t) => {
  const talk = await conversation(t, { prepared: 1 });
  talk.connections[0].peer.terminate();
  await until(() => talk.connections[1]?.received.length === 1);
  talk.made.close();
  await until(() => talk.connections[1].peer.readyState === Socket.CLOSED);
  assert.deepEqual([talk.count("ready"), talk.calls.at(-1), talk.connections.length], [1, ["end", null], 2]);
});

test("who hangs up when the connection is lost is called back by no attempt", async (t) => {
  const talk = await conversation(t, { onLost: (made) => made.close() });
  talk.connections[0].peer.terminate();
  await until(() => talk.count("end") === 1);
  // An attempt would have come to the server before this connection.
  const probe = new Socket(`${talk.address}/probe`);
  await once(probe, "open");
  assert.deepEqual(talk.connections.slice(1).map(({ url }) => url), ["/probe"]);
});

test("an end that the server gives a reason for is one", async (t) => {
  const talk = await conversation(t);
  talk.connections[0].peer.send(JSON.stringify({ type: "error", error: "it continues elsewhere", code: "session_lost" }));
  talk.connections[0].peer.close(1011, "session_lost");
  await until(() => talk.count("end") === 1);
  assert.deepEqual([talk.calls.at(-1)[1].code, talk.count("lost")], ["session_lost", 0]);
});

test("the latency of an answer is reported to the conversation that is on", async (t) => {
  const talk = await conversation(t);
  talk.made.report({ heard_ms: 900, round_trip_ms: 0, jitter_buffer_ms: 0, output_ms: 12 });
  await until(() => talk.connections[0].received.length === 2);
  assert.equal(talk.connections[0].received[1].heard_ms, 900);
  talk.made.close();
});

test("typed text is sent once the engine is ready", async (t) => {
  const talk = await conversation(t);
  assert.equal(talk.made.type("When are you open?"), true);
  await until(() => talk.connections[0].received.length === 2);
  assert.deepEqual(talk.connections[0].received[1], { type: "text", text: "When are you open?" });
  talk.made.show(["a", "b"]);
  chunk(talk);
  await until(() => talk.connections[0].received.length === 3);
  assert.deepEqual(talk.connections[0].received[2].frame_base64_list, ["a", "b"]);
  talk.made.close();
  assert.equal(talk.made.type("Too late"), false);
});
