// Audio thread: pass the microphone on in pieces of a given number of samples, each a Float32Array of its own.

class Capture extends AudioWorkletProcessor {
  #piece;
  #filled = 0;

  /** @param {{ processorOptions: { samples: number } }} options */
  constructor({ processorOptions }) {
    super();
    this.#piece = new Float32Array(processorOptions.samples);
    this.port.onmessage = ({ data }) => {
      this.#piece = new Float32Array(data.samples);
      this.#filled = 0;
    };
  }

  /** @param {Float32Array[][]} inputs */
  process([[channel]]) {
    for (let at = 0; channel && at < channel.length; ) {
      const room = Math.min(this.#piece.length - this.#filled, channel.length - at);
      this.#piece.set(channel.subarray(at, at + room), this.#filled);
      this.#filled += room;
      at += room;
      if (this.#filled === this.#piece.length) {
        this.port.postMessage(this.#piece.slice());
        this.#filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
