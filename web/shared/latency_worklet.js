// Audio thread: measure from the caller's last sound (first input) to the bot's first (second input), and report each gap.

import { VoiceGap } from "./latency_meter.js";

const QUANTUM = 128;

class Latency extends AudioWorkletProcessor {
  #gap = new VoiceGap(sampleRate);

  /** @param {Float32Array[][]} inputs each of no channel while its stream is silent or absent */
  process([caller, bot]) {
    const gap_ms = this.#gap.feed(caller[0], bot[0], caller[0]?.length ?? bot[0]?.length ?? QUANTUM);
    if (gap_ms !== null) this.port.postMessage(gap_ms);
    return true;
  }
}

registerProcessor("latency", Latency);
