import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { endWords, errorWords, whyRefused } from "../../web/shared/refusals.js";

beforeEach(() => openPage({ file: "omni.html" }));

test("a reason of the server is said in words with the next step", () => {
  assert.match(endWords({ code: "queue_full", text: "Queue full" }), /queue is full\. Try again/);
  assert.match(endWords({ code: "lost", text: "" }), /connection was lost\. Press Talk/);
  assert.equal(endWords({ code: "odd", text: "it broke" }), "The conversation is over: it broke. Press Talk to try again.");
  assert.match(endWords({ code: "constructor", text: "" }), /over: constructor/);
});

test("an error names the field that is to be changed", () => {
  const error = { code: "invalid_payload", text: "too long" };
  assert.match(errorWords({ ...error, param: "ref_audio_base64" }), /voice was refused: too long\. .*another voice/);
  assert.match(errorWords({ ...error, param: "system_prompt" }), /instructions were refused/);
  assert.match(errorWords({ ...error, param: "other" }), /server reports: too long/);
  assert.match(errorWords({ code: "inference_error", text: "x", param: "" }), /another one takes over/);
});

const APPS = { apps: [{ app_id: "omni" }] };
for (const [title, app, answers, expected] of [
  ["an app that is switched off", "audio_duplex", { "/api/apps": [200, APPS] }, /switched full duplex off/],
  ["a page without permission", "omni", { "/api/apps": [200, APPS], "/api/client": [401, {}] }, /may not begin/],
  ["a busy server", "omni", { "/api/apps": [200, APPS], "/api/client": [204, {}], "/ready": [200, {}] }, /all lines are in use/],
  ["a server that takes nothing", "omni", { "/api/apps": [200, APPS], "/api/client": [204, {}], "/ready": [503, {}] }, /takes no new/],
]) {
  test(`${title} is found out after a refused socket`, async (t) => {
    await serve(t, (request, response) => {
      const [status, body] = answers[request.url];
      if (status === 204) response.writeHead(204).end();
      else answerJson(response, body, status);
    });
    assert.match(await whyRefused(app), expected);
  });
}

test("a server that is away is named as such", async (t) => {
  const { stop } = await serve(t, () => {});
  await stop();
  assert.match(await whyRefused("omni"), /cannot be reached/);
});
