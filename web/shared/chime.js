// A short sound: two quiet tones, the second one higher.

const TONES_HZ = [659.3, 880];
const APART_S = 0.14;
const LONG_S = 0.5;
const ATTACK_S = 0.015;
const PEAK = 0.08;
const SILENT = 0.0001; // an exponential ramp cannot reach 0

/**
 * Play it.
 *
 * @param {AudioContext} context
 */
export function chime(context) {
  TONES_HZ.forEach((hz, at) => {
    const begin_s = context.currentTime + at * APART_S;
    const tone = context.createOscillator();
    const level = context.createGain();
    tone.frequency.value = hz;
    level.gain.setValueAtTime(SILENT, begin_s);
    level.gain.exponentialRampToValueAtTime(PEAK, begin_s + ATTACK_S);
    level.gain.exponentialRampToValueAtTime(SILENT, begin_s + LONG_S);
    tone.connect(level).connect(context.destination);
    tone.start(begin_s);
    tone.stop(begin_s + LONG_S);
  });
}
