/*
 * A conversation of OpenAI's agents SDK for JavaScript.
 *
 * `node agents_js_client.cjs URL QUESTION STOP` takes the address and two WAVs of 24 kHz, with NODE_PATH at the packages. QUESTION makes
 * the agent call its tool; STOP is spoken during the answer. The program prints what it has seen as one line of JSON.
 */

const { readFileSync } = require("node:fs");
const { performance } = require("node:perf_hooks");
const { RealtimeAgent, RealtimeSession, tool } = require("@openai/agents-realtime");
const { z } = require("zod");

const RATE_HZ = 24_000;
const PIECE_MS = 40;
const PIECE_BYTES = (RATE_HZ * PIECE_MS * 2) / 1000;
const CUT_AFTER_MS = 1_500;
const LONGEST_MS = 60_000;
const SETTLE_MS = 500;
const STEP_MS = 10;
const LEAST_STALL_MS = 5;
const MOST_GAPS = 5;

const seen = { errors: [], called: [], interrupted: 0, ended: 0, audio_bytes: 0 };

/** Return the samples of a recording: those after the header of a file that has no other parts. */
function pcmOf(path) {
  const file = readFileSync(path);
  const data = file.indexOf("data");
  return file.subarray(data + 8);
}

/** Clock of the player, as `player.py` has it. */
class Player {
  gaps = [];
  #answer = "";
  #untilMs = 0;
  #playedMs = 0;

  take(answer, lengthMs) {
    const nowMs = performance.now();
    if (answer !== this.#answer) {
      [this.#answer, this.#untilMs, this.#playedMs] = [answer, nowMs, 0];
    } else if (nowMs > this.#untilMs) {
      this.gaps.push({ fromMs: this.#untilMs, toMs: nowMs, afterMs: this.#playedMs });
      this.#untilMs = nowMs;
    }
    this.#untilMs += lengthMs;
    this.#playedMs += lengthMs;
  }

  over() {
    this.#answer = "";
  }

  report(stalls) {
    const gaps = this.gaps.map(({ fromMs, toMs, afterMs }) => ({
      ms: toMs - fromMs,
      own_ms: stalls.reduce((sum, [begin, end]) => sum + Math.max(0, Math.min(end, toMs) - Math.max(begin, fromMs)), 0),
      after_ms: afterMs,
    }));
    gaps.sort((one, other) => other.ms - one.ms);
    return {
      largest_gap_ms: Math.max(0, ...gaps.map((gap) => gap.ms)),
      largest_late_ms: Math.max(0, ...gaps.map((gap) => gap.ms - gap.own_ms)),
      gaps: gaps.slice(0, MOST_GAPS),
      longest_stall_ms: Math.max(0, ...stalls.map(([begin, end]) => end - begin)),
    };
  }
}

/** Record the times in which the loop ran nothing that was due; return them, and how to stop. */
function watchLoop() {
  const stalls = [];
  let dueMs = performance.now() + STEP_MS;
  let timer = setTimeout(look, STEP_MS);
  function look() {
    const nowMs = performance.now();
    if (nowMs - dueMs >= LEAST_STALL_MS) stalls.push([dueMs, nowMs]);
    dueMs = performance.now() + STEP_MS;
    timer = setTimeout(look, STEP_MS);
  }
  return { stalls, stop: () => clearTimeout(timer) };
}

async function main(url, question, stop) {
  const weather = tool({
    name: "weather",
    description: "Return the weather.",
    parameters: z.object({ city: z.string() }),
    execute: ({ city }) => {
      seen.called.push(city);
      return `sunny in ${city}`;
    },
  });
  const agent = new RealtimeAgent({ name: "Ada", instructions: "Be kind.", tools: [weather] });
  const session = new RealtimeSession(agent, { transport: "websocket", model: "parley" });
  const player = new Player();
  const { stalls, stop: stopWatch } = watchLoop();
  let firstAudioMs = null;
  let hasCut = false;
  let speech = Buffer.concat([Buffer.alloc(9_600), question]);
  const over = {};
  over.promise = new Promise((resolve) => {
    over.resolve = resolve;
  });

  session.on("error", ({ error }) => seen.errors.push(String(error?.message ?? JSON.stringify(error))));
  session.on("audio", (event) => {
    seen.audio_bytes += event.data.byteLength;
    player.take(event.responseId ?? String(seen.ended), (event.data.byteLength / 2 / RATE_HZ) * 1000);
    firstAudioMs ??= performance.now();
    if (!hasCut && performance.now() - firstAudioMs > CUT_AFTER_MS) {
      hasCut = true;
      speech = Buffer.concat([speech, stop]);
    }
  });
  session.on("audio_interrupted", () => {
    seen.interrupted += 1;
    player.over();
  });
  session.on("audio_stopped", () => {
    seen.ended += 1;
    player.over();
    if (seen.interrupted && seen.ended >= 2) over.resolve();
  });
  await session.connect({ apiKey: "x", url });
  let dueMs = performance.now();
  let microphone = setTimeout(speak, 0);
  function speak() {
    const piece = Buffer.alloc(PIECE_BYTES);
    speech.copy(piece, 0, 0, PIECE_BYTES);
    speech = speech.subarray(PIECE_BYTES);
    session.sendAudio(piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.byteLength));
    dueMs += PIECE_MS;
    microphone = setTimeout(speak, Math.max(0, dueMs - performance.now()));
  }
  const limit = setTimeout(() => {
    seen.errors.push("it took too long");
    over.resolve();
  }, LONGEST_MS);
  await over.promise;
  clearTimeout(limit);
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  clearTimeout(microphone);
  stopWatch();
  seen.history = session.history
    .filter((item) => item.type === "message")
    .map((item) => [item.role, item.content.map((part) => part.transcript ?? part.text ?? null)]);
  session.close();
  return { ...seen, ...player.report(stalls) };
}

const [url, question, stop] = process.argv.slice(2);
main(url, pcmOf(question), pcmOf(stop)).then(
  (found) => {
    console.log(JSON.stringify(found));
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
