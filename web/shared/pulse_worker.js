// Clock of a page that must not slow down in the background: browsers delay the timers of a hidden page up to a minute, and not
// those of its workers.

const BEAT_MS = 2_000;

setInterval(() => postMessage(null), BEAT_MS);
