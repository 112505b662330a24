import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { Follower } from "../../web/shared/follower.js";
import { SessionApi } from "../../web/shared/session_api.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const PATH = `/api/sessions/${ID}`;

/** A server with one session, and what a follower of it reports. */
async function followed(t, { events = [] } = {}) {
  const window = openPage();
  const session = { events, status: 200, streams: new Set(), after: [] };
  const { requests } = await serve(t, (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    if (session.status !== 200) answerJson(response, { error: "refused" }, session.status);
    else if (pathname === PATH) answerJson(response, { id: ID, last_seq: session.events.length });
    else if (pathname === `${PATH}/timeline`) answerJson(response, { events: session.events, after: null });
    else {
      session.after.push(Number(searchParams.get("after_seq")));
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(": here\n\n");
      session.streams.add(response);
      response.on("close", () => session.streams.delete(response));
    }
  });
  const seen = [];
  const follower = new Follower(new SessionApi(ID), {
    past: (past) => seen.push(["past", past.map(({ seq }) => seq)]),
    event: ({ seq }) => seen.push(["event", seq]),
    up: () => seen.push(["up"]),
    away: () => seen.push(["away"]),
    gone: () => seen.push(["gone"]),
  });
  t.after(() => follower.stop());
  return {
    follower,
    requests,
    seen,
    session,
    commit(seq) {
      session.events.push({ seq });
      for (const stream of session.streams) stream.write(`id: ${seq}\nevent: event\ndata: {"seq": ${seq}}\n\n`);
    },
    cut() {
      for (const stream of session.streams) stream.destroy();
    },
    hide(hidden) {
      Object.defineProperty(window.document, "hidden", { value: hidden, configurable: true });
      window.document.dispatchEvent(new window.Event("visibilitychange"));
    },
    count: (name) => seen.filter(([each]) => each === name).length,
  };
}

test("everything so far comes first, then each event as it is committed", async (t) => {
  const { follower, seen, session, commit } = await followed(t, { events: [{ seq: 2 }, { seq: 1 }] });
  follower.start();
  await until(() => session.streams.size);
  assert.deepEqual(seen, [["past", [2, 1]], ["up"]]);
  assert.deepEqual(session.after, [2]);
  commit(3);
  commit(4);
  await until(() => seen.length === 4);
  assert.deepEqual(seen.slice(2), [["event", 3], ["event", 4]]);
});

test("no event comes twice", async (t) => {
  const { follower, seen, session, commit } = await followed(t, { events: [{ seq: 1 }] });
  follower.start();
  await until(() => session.streams.size);
  commit(1);
  commit(2);
  commit(2);
  commit(3);
  await until(() => seen.at(-1)[1] === 3);
  assert.deepEqual(seen.slice(2), [["event", 2], ["event", 3]]);
});

test("a stream that breaks off is continued after the last event, without the past", async (t) => {
  const { follower, seen, session, commit, cut, count } = await followed(t);
  follower.start();
  await until(() => session.streams.size);
  commit(1);
  await until(() => count("event") === 1);
  cut();
  await until(() => session.after.length === 2);
  assert.deepEqual(session.after, [0, 1]);
  commit(2);
  await until(() => count("event") === 2);
  assert.deepEqual(seen, [["past", []], ["up"], ["event", 1], ["up"], ["event", 2]]);
});

test("a server that is away is tried again until it answers", async (t) => {
  const { follower, seen, session } = await followed(t);
  session.status = 503;
  follower.start();
  await until(() => seen.length);
  assert.deepEqual(seen, [["away"]]);
  session.status = 200;
  await until(() => session.streams.size);
  assert.deepEqual(seen.slice(-2), [["past", []], ["up"]]);
});

for (const status of [404, 401, 403]) {
  test(`an answer ${status} is the end`, async (t) => {
    const { follower, seen, session, requests } = await followed(t);
    session.status = status;
    follower.start();
    await until(() => seen.length);
    assert.deepEqual(seen, [["gone"]]);
    const count = requests.length;
    follower.start();
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(requests.length, count);
  });
}

test("a session that is deleted while it is followed is reported as gone", async (t) => {
  const { follower, seen, session, cut } = await followed(t);
  follower.start();
  await until(() => session.streams.size);
  session.status = 404;
  cut();
  await until(() => seen.at(-1)[0] === "gone");
  assert.deepEqual(seen, [["past", []], ["up"], ["gone"]]);
});

test("a hidden page gives its connection back, and continues where it was once it is visible", async (t) => {
  const { follower, seen, session, commit, hide, count } = await followed(t);
  follower.start();
  await until(() => session.streams.size);
  commit(1);
  await until(() => count("event") === 1);
  hide(true);
  await until(() => !session.streams.size);
  session.events.push({ seq: 2 });
  hide(false);
  await until(() => session.streams.size);
  assert.deepEqual(session.after, [0, 1]);
  commit(3);
  await until(() => count("event") === 2);
  assert.equal(count("past"), 1);
  assert.deepEqual(seen.at(-1), ["event", 3]);
});

test("a follower that was stopped does not begin again, also not when its page becomes visible", async (t) => {
  const { follower, session, hide, requests } = await followed(t);
  follower.start();
  await until(() => session.streams.size);
  follower.stop();
  await until(() => !session.streams.size);
  const count = requests.length;
  follower.start();
  hide(false);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(requests.length, count);
});

test("starting twice follows once", async (t) => {
  const { follower, session, seen } = await followed(t);
  follower.start();
  await until(() => session.streams.size);
  follower.start();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(session.streams.size, 1);
  assert.deepEqual(seen, [["past", []], ["up"]]);
});
