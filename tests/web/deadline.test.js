import assert from "node:assert/strict";
import { test } from "node:test";
import { within } from "../../web/shared/deadline.js";

test("a value that arrives in time is passed on", async () => {
  assert.equal(await within(60_000, Promise.resolve("value")), "value");
});

test("a failure that arrives in time is passed on", async () => {
  await assert.rejects(within(60_000, Promise.reject(new RangeError("too far"))), RangeError);
});

test("a promise that takes longer is rejected with a TimeoutError at its deadline and not before", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let error = null;
  const waiting = within(500, new Promise(() => {})).catch((reason) => (error = reason));
  t.mock.timers.tick(499);
  await Promise.resolve();
  assert.equal(error, null);
  t.mock.timers.tick(1);
  await waiting;
  assert.equal(error.name, "TimeoutError");
  assert.match(error.message, /500 ms/);
});

test("no timer is left over once the promise is settled", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  const waiting = within(60_000, Promise.resolve());
  assert.equal(timers(), before + 1);
  await waiting;
  assert.equal(timers(), before);
});
