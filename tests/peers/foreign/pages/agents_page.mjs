/*
 * A conversation of OpenAI's agents SDK in a page, over WebRTC: a page for OpenAI with another address.
 *
 * `hold(address, recordings)` takes the address of a server. It asks the question, whose answer needs the page's tool, speaks over the
 * answer, hears the next one to its end, and has the server end the call. It returns what it has seen.
 */

import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";

import { Microphone, TrackWatch, watchPage } from "./sound.mjs";

const LONGEST_MS = 60_000;
const CUT_AFTER_MS = 1_500;
const STEP_MS = 20;
const PRICE = "It costs five euros.";
// Any secret is accepted where no client needs one; the SDK takes none of another form in a page.
const SECRET = "ek_unused";

/** A call, and what was seen of it. */
class Call {
  errors = [];
  called = [];
  types = [];
  interrupted = 0;
  isSpeaking = false;
  speaksSinceMs = 0;
  ends = [];

  constructor(url) {
    const weather = tool({
      name: "weather",
      description: "Return the weather.",
      parameters: z.object({ city: z.string() }),
      execute: ({ city }) => {
        this.called.push(city);
        return `sunny in ${city}`;
      },
    });
    const agent = new RealtimeAgent({ name: "Ada", instructions: "Be kind.", tools: [weather] });
    this.transport = new OpenAIRealtimeWebRTC({ baseUrl: url });
    this.session = new RealtimeSession(agent, { transport: this.transport, model: "parley-cascade" });
    this.session.on("error", ({ error }) => this.errors.push(String(error?.message ?? JSON.stringify(error))));
    this.session.on("transport_event", (event) => this.#note(event));
  }

  #note({ type }) {
    this.types.push(type);
    if (type === "output_audio_buffer.started") [this.isSpeaking, this.speaksSinceMs] = [true, performance.now()];
    if (type !== "output_audio_buffer.stopped" && type !== "output_audio_buffer.cleared") return;
    this.isSpeaking = false;
    this.ends.push(performance.now());
    this.interrupted += Number(type === "output_audio_buffer.cleared");
  }

  get history() {
    return this.session.history
      .filter((item) => item.type === "message")
      .map((item) => [item.role, item.content.map((part) => part.transcript ?? part.text ?? null)]);
  }

  /** Wait until something is true. */
  async until(name, isTrue) {
    const untilMs = performance.now() + LONGEST_MS;
    while (!isTrue()) {
      if (this.errors.length) throw new Error(`${name}: there was an error`);
      if (performance.now() > untilMs) throw new Error(`${name}: it took too long`);
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
    }
  }
}

async function converse(call, url, microphone, [question, stop], seen) {
  await call.session.connect({ apiKey: SECRET });
  const id = call.transport.callId;
  await microphone.say(question);
  await call.until("the answer", () => call.called.length && call.isSpeaking);
  await call.until("its middle", () => performance.now() - call.speaksSinceMs > CUT_AFTER_MS);
  await microphone.say(stop);
  await call.until("the interruption", () => call.interrupted);
  await call.until("the price", () => call.history.at(-1)?.[1].join("") === PRICE && !call.isSpeaking);
  seen.history = call.history;
  const ended = await fetch(`${url}/${id}/hangup`, { method: "POST", headers: { Authorization: `Bearer ${SECRET}` } });
  seen.hung_up = ended.status;
  await call.until("the end", () => call.transport.status === "disconnected");
}

async function hold(address, recordings) {
  const url = `${address}/v1/realtime/calls`;
  const microphone = new Microphone();
  const spoken = await Promise.all(recordings.map((recording) => microphone.load(recording)));
  const stalls = watchPage();
  const call = new Call(url);
  const stats = async () => (await call.transport.connectionState.peerConnection?.getStats()) ?? new Map();
  const watch = new TrackWatch(stats, () => call.isSpeaking);
  const seen = { history: [], hung_up: 0 };
  try {
    await converse(call, url, microphone, spoken, seen);
  } catch (error) {
    call.errors.push(String(error));
  }
  watch.stop();
  return {
    ...seen,
    errors: call.errors,
    called: call.called,
    interrupted: call.interrupted,
    types: [...new Set(call.types)],
    state: call.transport.status,
    loudest: watch.loudest,
    pause_ms: watch.longestPauseMs,
    gaps_ms: watch.gaps,
    pieces_ms: [],
    ends_ms: call.ends,
    stalls_ms: stalls,
  };
}

window.hold = hold;
