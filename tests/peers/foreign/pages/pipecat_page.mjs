/*
 * A conversation of Pipecat's client for JavaScript, over its WebRTC or its WebSocket transport.
 *
 * `hold(address, recordings)` takes the address of a server, or that of its socket for Pipecat's clients. It connects, speaks while it
 * is muted, types, asks the question, speaks over the answer, connects again with the session and types. It returns what it has seen.
 */

import { PipecatClient } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport } from "@pipecat-ai/small-webrtc-transport";
import { WavMediaManager, WebSocketTransport } from "@pipecat-ai/websocket-transport";

import { PageMedia } from "./media.mjs";
import { Microphone, TrackWatch, watchPage } from "./sound.mjs";

const LONGEST_MS = 60_000;
const CUT_AFTER_MS = 1_500;
const STEP_MS = 20;
// Rates of the WebSocket transport's audio, of the bot and of the microphone.
const BOT_HZ = 24_000;
const MICROPHONE_HZ = 16_000;
const TYPED = "What is the price?";
const PRICE = "It costs five euros.";

/** Media of the WebSocket transport's own package, with a record of the audio that came and when. */
class RecordedMedia extends WavMediaManager {
  loudest = 0;
  pieces = [];

  bufferBotAudio(data, id) {
    this.pieces.push([performance.now(), (data.length / BOT_HZ) * 1000]);
    for (const sample of data) this.loudest = Math.max(this.loudest, Math.abs(sample) / 0x8000);
    return super.bufferBotAudio(data, id);
  }
}

/** A client, and what was seen of its calls. */
class Call {
  errors = [];
  heard = [];
  // By segment, in the order in which the bot began them.
  said = new Map();
  sessions = [];
  isSpeaking = false;
  speaksSinceMs = 0;
  interruptions = 0;
  // Times at which an answer was over: what comes next is not played in one piece with it.
  ends = [];

  constructor(transport) {
    const note = (message) => this.errors.push(JSON.stringify(message.data));
    this.client = new PipecatClient({
      transport,
      callbacks: {
        onError: note,
        onMessageError: note,
        onDeviceError: (error) => this.errors.push(String(error)),
        onTrackStarted: (track, participant) => this.#play(track, participant),
        onServerMessage: ({ kind, id }) => kind === "session" && this.sessions.push(id),
        onUserTranscript: ({ text, final }) => final && this.heard.push(text),
        onUserStartedSpeaking: () => (this.interruptions += Number(this.isSpeaking)),
        onBotStartedSpeaking: () => ([this.isSpeaking, this.speaksSinceMs] = [true, performance.now()]),
        onBotStoppedSpeaking: () => {
          this.isSpeaking = false;
          this.ends.push(performance.now());
        },
        onBotOutput: (output) => this.said.set(output.segment_id, output),
      },
    });
  }

  #play(track, participant) {
    if (participant?.local || track.kind !== "audio") return;
    const sound = new Audio();
    sound.srcObject = new MediaStream([track]);
    sound.play().catch((error) => this.errors.push(String(error)));
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

  /** Wait for an answer about the price; return the words that were heard since so many segments. */
  async price(name, since) {
    await this.until(name, () => this.words(since).endsWith(PRICE) && !this.isSpeaking);
    return this.words(since);
  }

  words(since) {
    const segments = [...this.said.values()].slice(since);
    return segments.map(({ spoken_progress: progress }) => progress?.accumulated_text ?? "").join(" ").trim();
  }
}

async function converse(call, connect, microphone, [question, stop], seen) {
  const { client } = call;
  await connect();
  seen.microphones = (await client.getAllMics()).length;
  client.enableMic(false);
  await microphone.say(question);
  await call.until("the greeting", () => call.said.size && !call.isSpeaking);
  seen.heard_while_muted = [...call.heard];
  client.enableMic(true);

  let since = call.said.size;
  await client.sendText(TYPED);
  seen.typed = await call.price("typed", since);

  since = call.said.size;
  await microphone.say(question);
  await call.until("the answer", () => call.isSpeaking && call.words(since));
  await call.until("its middle", () => performance.now() - call.speaksSinceMs > CUT_AFTER_MS);
  await microphone.say(stop);
  await call.until("the interruption", () => call.interruptions);
  seen.spoken = await call.price("spoken", since);
  await client.disconnect();

  since = call.said.size;
  await connect(call.sessions[0]);
  await client.sendText(TYPED);
  seen.again = await call.price("after the reconnection", since);
  await client.disconnect();
}

async function hold(address, recordings) {
  const microphone = new Microphone();
  const spoken = await Promise.all(recordings.map((recording) => microphone.load(recording)));
  const stalls = watchPage();
  const isSocket = address.startsWith("ws");
  const media = isSocket ? new RecordedMedia(undefined, MICROPHONE_HZ) : new PageMedia();
  const transport = isSocket ? new WebSocketTransport({ mediaManager: media }) : new SmallWebRTCTransport({ mediaManager: media });
  const call = new Call(transport);
  const watch = new TrackWatch(async () => (await transport.pc?.getStats()) ?? new Map(), () => call.isSpeaking);
  const connect = (session) => {
    if (isSocket) return call.client.connect({ wsUrl: session ? `${address}?session=${session}&reconnect=true` : address });
    // With a request for a session, and without one.
    if (!session) return call.client.startBotAndConnect({ endpoint: `${address}/start`, requestData: { body: {} } });
    const requestData = { session, reconnect: true };
    return call.client.connect({ webrtcRequestParams: { endpoint: `${address}/api/offer`, requestData } });
  };
  const seen = {};
  try {
    await converse(call, connect, microphone, spoken, seen);
  } catch (error) {
    call.errors.push(String(error));
  }
  watch.stop();
  return {
    ...seen,
    errors: call.errors,
    heard: call.heard,
    interruptions: call.interruptions,
    sessions: call.sessions,
    state: call.client.state,
    loudest: Math.max(watch.loudest, media.loudest ?? 0),
    pause_ms: watch.longestPauseMs,
    gaps_ms: watch.gaps,
    pieces_ms: media.pieces ?? [],
    ends_ms: call.ends,
    stalls_ms: stalls,
  };
}

window.hold = hold;
