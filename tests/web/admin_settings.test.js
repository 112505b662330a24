import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";

const DRAIN = { path: "server.drain_s", value: "5.0", default: "20.0", is_given: true, meaning: "time to go on (s)" };
const CALLS = { path: "server.max_calls", value: "4", default: "", is_given: false, meaning: "calls at a time" };

/** The module looks for its parts of the page when it is loaded. */
async function matching(...given) {
  openPage({ file: "admin.html" });
  return (await import("../../web/shared/admin_settings.js")).matching(...given);
}

test("every word of a search is found in the name, the values or the meaning", async () => {
  const all = [DRAIN, CALLS];
  assert.deepEqual(await matching(all, "", { given: false }), all);
  assert.deepEqual(await matching(all, "SERVER drain", { given: false }), [DRAIN]);
  assert.deepEqual(await matching(all, "20.0", { given: false }), [DRAIN]);
  assert.deepEqual(await matching(all, "calls time", { given: false }), [CALLS]);
  assert.deepEqual(await matching(all, "drain calls", { given: false }), []);
});

test("defaults are left out where only the deployment's own settings are wanted", async () => {
  assert.deepEqual(await matching([DRAIN, CALLS], "server", { given: true }), [DRAIN]);
});
