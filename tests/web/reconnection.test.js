import assert from "node:assert/strict";
import { test } from "node:test";
import { pauseMs } from "../../web/shared/reconnection.js";

const AWAY = { status: 0, tookMs: 0, sinceMs: 3_000 };

test("a server that is away is looked for again within half a second", () => {
  assert.equal(pauseMs(AWAY, () => 0), 250);
  assert.equal(pauseMs(AWAY, () => 1), 500);
  assert.equal(pauseMs({ ...AWAY, status: 502 }, () => 1), 500);
});

test("one that has been away for long is looked for less often", () => {
  assert.equal(pauseMs({ ...AWAY, sinceMs: 30_000 }, () => 0), 500);
  assert.equal(pauseMs({ ...AWAY, sinceMs: 30_000 }, () => 1), 1_000);
});

test("an attempt that has waited is followed at once", () => {
  assert.equal(pauseMs({ ...AWAY, tookMs: 200 }, () => 0), 50);
  assert.equal(pauseMs({ ...AWAY, tookMs: 2_000 }, () => 1), 0);
});

test("a server that refuses is left alone for longer", () => {
  for (const status of [409, 429, 503]) assert.equal(pauseMs({ ...AWAY, status }, () => 0), 1_000);
});

test("the pages of a server do not return in step", () => {
  const pauses = new Set(Array.from({ length: 20 }, () => pauseMs(AWAY)));
  assert.ok(pauses.size > 10);
});

test("a page never makes more than four attempts a second", () => {
  for (const tookMs of [0, 100, 249, 251]) assert.ok(tookMs + pauseMs({ ...AWAY, tookMs }, () => 0) >= 250);
});
