// Loudness of a stream, several times a second.

const FLOOR_DB = -60;
const CEILING_DB = -12;
const EVERY_MS = 60;

/**
 * Call `show` with 0..1 until the returned function is called.
 *
 * @param {AudioContext} context
 * @param {MediaStream} stream
 * @param {(level: number) => void} show
 * @returns {() => void}
 */
export function watchLevel(context, stream, show) {
  const source = context.createMediaStreamSource(stream);
  const analyser = context.createAnalyser();
  analyser.fftSize = 1024;
  source.connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const timer = setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    const power = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
    const db = 10 * Math.log10(power + 1e-12);
    show(Math.min(1, Math.max(0, (db - FLOOR_DB) / (CEILING_DB - FLOOR_DB))));
  }, EVERY_MS);
  return () => {
    clearInterval(timer);
    source.disconnect();
    show(0);
  };
}
