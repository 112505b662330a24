// Latency at the caller's ear: measures each answer in the audio thread, and says how it differs from what the server measured.

import { t } from "./language.js";

/** @import { HeardLatency } from "../types/server.js" */

// Below this difference nothing has to be explained.
export const CLOSE_MS = 30;

/** @typedef {{ round_trip_ms: number, jitter_buffer_ms: number }} Transit */

/** Measurement of the answers of one call. */
export class LatencyBeacon {
  #context;
  #transit;
  #report;
  /** @type {AudioWorkletNode | null} */
  #node = null;
  /** @type {MediaStreamAudioSourceNode | null} */
  #caller = null;
  /** @type {MediaStreamAudioSourceNode | null} */
  #bot = null;
  #closed = false;

  /**
   * @param {AudioContext} context
   * @param {() => Promise<Transit>} transit reads the way of the sound from the connection
   * @param {(heard: HeardLatency) => void} report called for each answer
   */
  constructor(context, transit, report) {
    this.#context = context;
    this.#transit = transit;
    this.#report = report;
  }

  /**
   * Begin to measure. A browser without audio worklets measures nothing.
   *
   * @param {MediaStream} caller what the bot is sent
   * @param {MediaStream} bot
   */
  async start(caller, bot) {
    if (!this.#context.audioWorklet) return;
    this.follow(caller);
    await this.#context.audioWorklet.addModule("/shared/latency_worklet.js");
    if (this.#closed) return;
    this.#node = new AudioWorkletNode(this.#context, "latency", { numberOfInputs: 2, numberOfOutputs: 0 });
    this.#node.port.onmessage = ({ data }) => this.#onGap(data);
    this.#caller?.connect(this.#node, 0, 0);
    this.#bot = this.#context.createMediaStreamSource(bot);
    this.#bot.connect(this.#node, 0, 1);
  }

  /**
   * Measure from now on against another stream of the caller.
   *
   * @param {MediaStream} caller
   */
  follow(caller) {
    this.#caller?.disconnect();
    this.#caller = this.#context.createMediaStreamSource(caller);
    if (this.#node) this.#caller.connect(this.#node, 0, 0);
  }

  close() {
    this.#closed = true;
    this.#caller?.disconnect();
    this.#bot?.disconnect();
    this.#node?.port.close();
    this.#node = null;
  }

  /** @param {number} gap_ms between the two streams, before the loudspeaker */
  async #onGap(gap_ms) {
    const { round_trip_ms, jitter_buffer_ms } = await this.#transit();
    if (this.#closed) return;
    const output_ms = Math.round(1_000 * (this.#context.outputLatency || this.#context.baseLatency || 0));
    this.#report({
      heard_ms: Math.round(gap_ms) + output_ms,
      round_trip_ms: Math.round(round_trip_ms),
      jitter_buffer_ms: Math.round(jitter_buffer_ms),
      output_ms,
    });
  }
}

/**
 * Return by how much the ear is later than the server, and the part of it that its known causes leave.
 *
 * @param {HeardLatency} heard
 * @param {number} server_ms
 */
export function difference({ heard_ms, round_trip_ms, jitter_buffer_ms, output_ms }, server_ms) {
  const later_ms = heard_ms - Math.round(server_ms);
  return { later_ms, rest_ms: later_ms - round_trip_ms - jitter_buffer_ms - output_ms };
}

/**
 * Return what is said about an answer: both latencies, their difference, and where it comes from.
 *
 * @param {HeardLatency} heard
 * @param {number} server_ms
 */
export function heardLater(heard, server_ms) {
  const { later_ms, rest_ms } = difference(heard, server_ms);
  const both = { heard: heard.heard_ms, server: Math.round(server_ms), later: later_ms };
  if (Math.abs(later_ms) < CLOSE_MS) return t("heard_near", both);
  const known = { network: heard.round_trip_ms, jitter: heard.jitter_buffer_ms, output: heard.output_ms };
  const rest = Math.abs(rest_ms) < CLOSE_MS ? "" : t("heard_rest", { rest: rest_ms });
  return t("heard_far", { ...both, ...known, rest });
}
