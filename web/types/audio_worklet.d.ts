// Names of the scope in which an audio worklet runs; TypeScript's library of the DOM does not have them.

declare class AudioWorkletProcessor {
  constructor(options?: AudioWorkletNodeOptions);
  readonly port: MessagePort;
}

declare function registerProcessor(
  name: string,
  processor: new (options: { processorOptions: any }) => AudioWorkletProcessor & {
    process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean;
  },
): void;

/** Rate of the context, in samples a second. */
declare const sampleRate: number;
