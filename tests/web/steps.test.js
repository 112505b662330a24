// Steps to another medium: what the page shows, opens and reports.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { openPage, setGlobal } from "./support/page.js";

openPage({ file: "index.html" });
setGlobal("navigator", { languages: ["en"] });
const { Steps } = await import("../../web/shared/steps.js");

/** Open the page; every act of the steps is noted, and a source is shown where `can` says so. */
function stepping({ can = true } = {}) {
  const page = openPage({ file: "index.html" }).document;
  const acts = [];
  const steps = new Steps({
    show: async (source) => (acts.push(`show ${source}`), can),
    hide: () => acts.push("hide"),
    leave: () => acts.push("leave"),
    report: (answer) => acts.push(answer),
  });
  const part = (role) => page.querySelector(`[data-role="${role}"]`);
  let epoch = 0;
  const take = (tier, to) => steps.take({ kind: "tier", tier, to, reason: "", epoch: (epoch += 1) });
  return { acts, part, steps, take, settled: () => new Promise(setImmediate) };
}

test("an offer is shown until it is over, and both buttons answer", () => {
  const { acts, part, take } = stepping();
  assert.ok(part("step").hidden);
  take("step_offered", "text");
  assert.ok(!part("step").hidden);
  assert.equal(part("step-text").textContent, "Parley offers to go on in writing.");
  part("step-accept").click();
  part("step-decline").click();
  assert.deepEqual(acts, ["accepted", "declined"]);
  take("agent", "text");
  assert.ok(part("step").hidden);
});

test("an accepted camera opens by itself, and a screen after a click", async () => {
  const { acts, part, take } = stepping();
  take("stepping", "video");
  assert.ok(part("step").hidden);
  take("stepping", "screen");
  assert.ok(!part("step").hidden);
  part("step-accept").click();
  assert.deepEqual(acts, ["show camera", "show screen"]);
});

test("the click that accepts a camera opens it at once", () => {
  const { acts, part, take } = stepping();
  take("step_offered", "video");
  part("step-accept").click();
  assert.deepEqual(acts, ["show camera", "accepted"]);
});

test("a source that the browser does not show is reported", async () => {
  const { acts, settled, take } = stepping({ can: false });
  take("stepping", "video");
  await settled();
  assert.deepEqual(acts, ["show camera", "failed"]);
});

test("a step to voice hides everything", () => {
  const { acts, take } = stepping();
  take("stepping", "voice");
  assert.deepEqual(acts, ["hide"]);
});

test("the page leaves for writing once the bot has said so, or after a while", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const first = stepping();
    first.steps.quiet();
    first.take("stepping", "text");
    assert.deepEqual(first.acts, []);
    first.steps.quiet();
    first.steps.quiet();
    mock.timers.tick(60_000);
    assert.deepEqual(first.acts, ["leave"]);

    const second = stepping();
    second.take("stepping", "text");
    mock.timers.tick(60_000);
    assert.deepEqual(second.acts, ["leave"]);

    const third = stepping();
    third.take("stepping", "text");
    third.steps.close();
    mock.timers.tick(60_000);
    assert.deepEqual(third.acts, []);
  } finally {
    mock.timers.reset();
  }
});
