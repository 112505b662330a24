import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { RecordingsPin } from "../../web/shared/recordings_pin.js";
import { SessionApi } from "../../web/shared/session_api.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const PIN = `/api/sessions/${ID}/pin`;

/** The opened recordings of a session's page, for an operator or for another reader. */
async function opened(context, { isOperator = true, isPinned = false, refusal = "" } = {}) {
  const window = openPage({ file: "session.html" });
  const { requests } = await serve(context, (request, response) => {
    if (request.url === "/api/admin/session") answerJson(response, { is_operator: isOperator, token_env: "T" });
    else if (request.method === "GET") answerJson(response, { is_pinned: isPinned });
    else if (refusal) answerJson(response, { error: refusal }, 503);
    else response.writeHead(204).end();
  });
  const fold = document.querySelector('[data-role="recordings"]');
  const part = (role) => fold.querySelector(`[data-role="${role}"]`);
  new RecordingsPin(new SessionApi(ID), fold);
  fold.open = true;
  await until(() => requests.length);
  if (isOperator) await until(() => !part("pin-row").hidden);
  return {
    part,
    requests,
    turn: (isOn) => {
      part("pin").checked = isOn;
      part("pin").dispatchEvent(new window.Event("change"));
    },
  };
}

test("a reader who is no operator sees no switch, and nothing is asked about the pin", async (context) => {
  const { part, requests } = await opened(context, { isOperator: false });
  assert.deepEqual([part("pin-row").hidden, requests.length], [true, 1]);
});

for (const isPinned of [true, false]) {
  test(`the switch shows the state of the server (${isPinned})`, async (context) => {
    const { part } = await opened(context, { isPinned });
    assert.equal(part("pin").checked, isPinned);
  });
}

test("the switch pins and unpins at the server, one at a time", async (context) => {
  const { part, requests, turn } = await opened(context);
  turn(true);
  assert.equal(part("pin").disabled, true);
  await until(() => !part("pin").disabled);
  turn(false);
  await until(() => !part("pin").disabled);
  assert.deepEqual(requests.filter(({ path }) => path === PIN).map(({ method }) => method), ["GET", "PUT", "DELETE"]);
  assert.equal(part("pin-notice").hidden, true);
});

test("a refusal is shown, and the switch goes back", async (context) => {
  const { part, turn } = await opened(context, { refusal: "S3 does not answer" });
  turn(true);
  await until(() => !part("pin").disabled);
  assert.equal(part("pin").checked, false);
  assert.match(part("pin-notice").textContent, /S3 does not answer/);
});
