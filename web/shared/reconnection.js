// When a page looks again for a server that does not answer. Pure: time and chance come in.

// The distance between the beginnings of two attempts, at most: a server that starts anew is found soon. With half of it at least, a
// page makes four requests a second at most, and 1.6 on average once the server has been away for long.
const SOON_MS = 500;
const LATER_MS = 1_000;
const SOON_UNTIL_MS = 30_000;
// A server that answers with a refusal has more to do than to be found.
const REFUSED_MS = 2_000;
// From a proxy: there is no server, or none that answers.
const AWAY = [0, 502, 504];

/**
 * Return how long to wait after an attempt that has failed. A random part keeps the pages of a server from returning in step.
 *
 * @param {object} attempt
 * @param {number} attempt.status of the server's refusal; 0 without an answer
 * @param {number} attempt.tookMs duration of the attempt: one that has waited long is followed at once
 * @param {number} attempt.sinceMs time since the connection was lost
 * @param {() => number} [random] returns a number in [0, 1)
 */
export function pauseMs({ status, tookMs, sinceMs }, random = Math.random) {
  const most = AWAY.includes(status) ? (sinceMs < SOON_UNTIL_MS ? SOON_MS : LATER_MS) : REFUSED_MS;
  return Math.max(0, (most * (1 + random())) / 2 - tookMs);
}
