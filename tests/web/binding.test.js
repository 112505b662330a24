import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const OTHER = "ffffffff-0123-4567-89ab-0123456789ab";
const PATH = `/api/sessions/${ID}`;
const AT_US = 1_700_000_000_000_000;

openPage({ file: "index.html" });
// The module looks for its links when it is loaded.
const { Binding } = await import("../../web/shared/binding.js");
const { Bubbles } = await import("../../web/shared/bubbles.js");
const link = (role) => document.querySelector(`[data-role="${role}"]`);

/** The binding of a page with an address, and the column of its bubbles. */
function opened(address) {
  history.replaceState(null, "", address);
  const root = document.createElement("div");
  const bubbles = new Bubbles(root);
  return {
    binding: new Binding(bubbles),
    bubbles,
    root,
    texts: () => [...root.querySelectorAll(".bubble")].map(({ textContent }) => textContent),
  };
}

const where = () => location.pathname + location.search;

const said = (seq, text) => ({ seq, event_us: AT_US + seq, kind: "user_turn", key: `k${seq}`, payload: { text, transport: "text" } });

/** A server with one session of so many turns. */
const serveTurns = (t, count) =>
  serve(t, (request, response) => {
    if (request.url === PATH) answerJson(response, { id: ID, last_seq: count });
    else answerJson(response, { events: Array.from({ length: count }, (_, at) => said(at + 1, `text ${at + 1}`)), after: null });
  });

test("a page without a session begins a new one", () => {
  assert.equal(opened("/").binding.sessionId, null);
});

test("the address names the session that continues", () => {
  assert.equal(opened(`/?session=${ID}`).binding.sessionId, ID);
  assert.equal(where(), `/?session=${ID}`);
});

test("an id that cannot be one is removed from the address, and nothing else is", () => {
  assert.equal(opened("/?raw=1&session=..%2Fadmin").binding.sessionId, null);
  assert.equal(where(), "/?raw=1");
});

test("the session that the server reports is written into the address", () => {
  const { binding } = opened("/?raw=1");
  binding.bind(ID);
  assert.equal(binding.sessionId, ID);
  assert.equal(where(), `/?raw=1&session=${ID}`);
  binding.bind(OTHER);
  assert.equal(where(), `/?raw=1&session=${OTHER}`);
});

test("a report that is not the id of a session is ignored", () => {
  const { binding } = opened(`/?session=${ID}`);
  binding.bind("javascript:alert(1)");
  assert.equal(binding.sessionId, ID);
});

test("the links lead to the session as text and to a new one", () => {
  const { binding } = opened("/");
  binding.showLinks({ busy: false });
  assert.deepEqual([link("as-text").textContent, link("as-text").getAttribute("href")], ["Text only", "/s/new"]);
  assert.ok(link("new-conversation").hidden);
  binding.bind(ID);
  binding.showLinks({ busy: true });
  assert.deepEqual([link("as-text").textContent, link("as-text").getAttribute("href")], ["Open as text", `/s/${ID}`]);
  assert.ok(!link("new-conversation").hidden);
});

test("during a call the session as text opens in another tab, so that the call goes on", () => {
  const { binding } = opened(`/?session=${ID}`);
  binding.showLinks({ busy: true });
  assert.equal(link("as-text").target, "_blank");
  binding.showLinks({ busy: false });
  assert.equal(link("as-text").target, "");
});

test("a new conversation begins at the address without the session", () => {
  opened(`/?raw=1&session=${ID}`);
  assert.equal(new URL(link("new-conversation").href).search, "?raw=1");
});

test("the last turns of the session come before those of the call", async (t) => {
  await serveTurns(t, 25);
  const { binding, bubbles, texts } = opened(`/?session=${ID}`);
  const { item, bubble } = bubbles.make("bot");
  bubble.textContent = "new";
  bubbles.put(item);
  assert.equal(await binding.showEarlier(), "");
  assert.equal(texts().length, 21);
  assert.deepEqual([texts()[0], texts()[19], texts()[20]], ["text 6", "text 25", "new"]);
});

test("a page without a session has no earlier turns", async () => {
  const { binding, root } = opened("/");
  assert.equal(await binding.showEarlier(), "");
  assert.equal(root.childElementCount, 0);
});

test("a deleted session is released, and the user is informed", async (t) => {
  await serve(t, (request, response) => answerJson(response, { error: "no such session" }, 404));
  const { binding } = opened(`/?session=${ID}`);
  assert.match(await binding.showEarlier(), /was deleted/);
  assert.equal(binding.sessionId, null);
  assert.equal(where(), "/");
});

test("a session that cannot be read at the moment stays", async (t) => {
  await serve(t, (request, response) => answerJson(response, { error: "the store is away" }, 503));
  const { binding } = opened(`/?session=${ID}`);
  assert.equal(await binding.showEarlier(), "The earlier conversation cannot be shown. The server reports: the store is away.");
  assert.equal(binding.sessionId, ID);
});

test("a lost session is released only if it was deleted", async (t) => {
  let status = 404;
  await serve(t, (request, response) => answerJson(response, { id: ID, last_seq: 0, error: "no" }, status));
  const lost = opened(`/?session=${ID}`).binding;
  assert.match(await lost.whyLost(), /was deleted/);
  assert.equal(lost.sessionId, null);
  status = 200;
  const taken = opened(`/?session=${ID}`).binding;
  assert.match(await taken.whyLost(), /continues elsewhere/);
  assert.equal(taken.sessionId, ID);
  status = 503;
  assert.equal(await taken.dropDeleted(), "");
  assert.equal(taken.sessionId, ID);
});

test("a deletion that is found out late does not release the next session", async (t) => {
  const answers = [];
  await serve(t, (request, response) => answers.push(response));
  const { binding } = opened(`/?session=${ID}`);
  const dropping = binding.dropDeleted();
  while (!answers.length) await new Promise((resolve) => setTimeout(resolve, 2));
  binding.bind(OTHER);
  answerJson(answers[0], { error: "no such session" }, 404);
  await dropping;
  assert.equal(binding.sessionId, OTHER);
});

test("a code continues the session by telephone", async (t) => {
  const { requests } = await serve(t, (request, response) =>
    answerJson(response, { code: "4711", number: "+1 555 0100", expires_s: 590 }),
  );
  const text = await opened(`/?session=${ID}`).binding.byPhone();
  assert.equal(requests[0].path, `${PATH}/call-code`);
  assert.equal(text, "Call +1 555 0100 and press 4711 on the keypad within 10 minutes. This call then continues there.");
});
