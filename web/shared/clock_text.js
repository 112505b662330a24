// Lengths of time as people read them.

/**
 * Return a time as minutes and seconds.
 *
 * @param {number} ms
 */
export function clockOf(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
