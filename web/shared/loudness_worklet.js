// Audio thread: measure the loudness of the first input, and report it with every block, ten times a second.

import { LoudnessMeter } from "./loudness.js";

const QUANTUM = 128;

class Loudness extends AudioWorkletProcessor {
  #meter = new LoudnessMeter(sampleRate);

  /** @param {Float32Array[][]} inputs of no channel while its stream is silent or absent */
  process([[samples]]) {
    if (this.#meter.feed(samples, samples?.length ?? QUANTUM)) {
      this.port.postMessage({ momentary: this.#meter.momentary, integrated: this.#meter.integrated });
    }
    return true;
  }
}

registerProcessor("loudness", Loudness);
