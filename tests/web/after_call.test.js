import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { AfterCall, recordingOf } from "../../web/shared/after_call.js";

const SESSION = "01890000-0000-7000-8000-000000000001";
const CALL = { call_id: "c1", began_us: Date.now() * 1_000, is_over: true, has_replay: true, problem: "" };

/** The line after a call of a server that answers with these recordings. */
async function afterCall(context, calls, status = 200) {
  const window = openPage({ file: "index.html" });
  setGlobal("navigator", window.navigator);
  const { requests } = await serve(context, (_request, response) => answerJson(response, { calls }, status));
  const root = document.querySelector('[data-role="after-call"]');
  const line = new AfterCall(root);
  const links = () => [...root.querySelectorAll("a")].filter((link) => !link.closest("[hidden]"));
  return { line, root, requests, links, hrefs: () => links().map((link) => link.getAttribute("href")) };
}

test("the recording of a call is the newest that began with it, and none of an earlier call", () => {
  const calls = [{ ...CALL, began_us: 1_000_000 }, { ...CALL, began_us: 100_000_000 }];
  assert.equal(recordingOf(calls, 101_000), calls[1]);
  assert.equal(recordingOf(calls, 200_000), undefined);
  assert.equal(recordingOf([], 0), undefined);
});

test("a recorded call leads to its conversation, and to the recording to play, download and share", async (context) => {
  const { line, links, hrefs } = await afterCall(context, [CALL]);
  line.begin(SESSION, 5_000);
  await until(() => links().length === 4);
  const path = `/s/${SESSION}`;
  const replay = `/api/sessions/${SESSION}/recordings/c1/replay.wav`;
  assert.deepEqual(hrefs(), [path, `${path}#recordings`, replay, `${path}#share`]);
  assert.equal(links()[2].download, "c1.wav");
});

test("a call that was not recorded, or whose recording one may not read, leads to its conversation", async (context) => {
  for (const [calls, status] of [[[], 200], [[], 403], [[{ ...CALL, began_us: 1_000_000 }], 200]]) {
    const { line, requests, hrefs } = await afterCall(context, calls, status);
    line.begin(SESSION, 5_000);
    await until(() => requests.length === 1);
    assert.deepEqual(hrefs(), [`/s/${SESSION}`]);
  }
});

test("the next call removes the line, and a call without a conversation has none", async (context) => {
  const { line, root, links } = await afterCall(context, [CALL]);
  line.begin(SESSION, 5_000);
  await until(() => links().length === 4);
  line.hide();
  assert.equal(root.hidden, true);
  line.begin(null, 5_000);
  assert.equal(root.hidden, true);
});
