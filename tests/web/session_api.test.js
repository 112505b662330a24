import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { ApiError, SessionApi, newKey } from "../../web/shared/session_api.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const PATH = `/api/sessions/${ID}`;

test.beforeEach(() => openPage());

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error.stack));
    return error;
  }
  return assert.fail("nothing failed");
}

/** Read an answer to its end. */
async function answer(api, { stop = new AbortController().signal } = {}) {
  const events = [];
  for await (const event of api.say("Hello", "key-1", stop)) events.push(event);
  return events;
}

/** Serve one answer as server-sent events, in pieces of bytes. */
function serveAnswer(t, pieces, { finish = true } = {}) {
  return serve(t, async (request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (finish) response.end();
  });
}

test("only the form of a session's id is accepted", () => {
  assert.ok(SessionApi.isId(ID));
  for (const text of [null, undefined, "", "new", `${ID}0`, ID.toUpperCase(), `../${ID}`]) assert.ok(!SessionApi.isId(text));
});

test("keys differ, also where the browser has no randomUUID", (t) => {
  assert.match(newKey(), /^[0-9a-f-]{36}$/);
  const { crypto } = globalThis;
  t.after(() => setGlobal("crypto", crypto));
  setGlobal("crypto", { getRandomValues: (bytes) => crypto.getRandomValues(bytes) });
  const keys = [newKey(), newKey()];
  assert.match(keys[0], /^[0-9a-f]{32}$/);
  assert.notEqual(keys[0], keys[1]);
});

test("a session is begun with the token of the address, which is used once", async (t) => {
  openPage({ address: "http://localhost:7860/s/new#token=first" });
  const { requests } = await serve(t, (request, response) => {
    if (request.url === "/api/client") answerJson(response, {});
    else answerJson(response, { id: ID, next_token: "second" }, 201);
  });
  const api = await SessionApi.create();
  assert.equal(api.id, ID);
  assert.equal(location.hash, "");
  assert.deepEqual(requests.map(({ method, path }) => [method, path]), [["POST", "/api/client"], ["POST", "/api/sessions"]]);
  assert.equal(requests[1].headers.authorization, "Bearer first");
  await SessionApi.create();
  assert.equal(requests.at(-1).headers.authorization, "Bearer second");
});

test("without a token none is sent", async (t) => {
  const { requests } = await serve(t, (request, response) => answerJson(response, { id: ID }, 201));
  await SessionApi.create();
  assert.deepEqual(requests.map(({ path }) => path), ["/api/sessions"]);
  assert.equal(requests[0].headers.authorization, undefined);
});

test("everything so far is read page by page, without what was committed after the reading began", async (t) => {
  const pages = {
    null: { events: [{ seq: 2 }, { seq: 1 }], after: "10.1" },
    "10.1": { events: [{ seq: 4 }, { seq: 3 }], after: null },
  };
  const { requests } = await serve(t, (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    answerJson(response, pathname === PATH ? { id: ID, last_seq: 3 } : pages[searchParams.get("after")]);
  });
  const events = await new SessionApi(ID).past();
  assert.deepEqual(events.map(({ seq }) => seq), [2, 1, 3]);
  assert.deepEqual(
    requests.map(({ path }) => path),
    [PATH, `${PATH}/timeline?limit=1000`, `${PATH}/timeline?limit=1000&after=10.1`],
  );
});

test("the place after an event names its time and its number", () => {
  assert.equal(SessionApi.placeBehind({ event_us: 1_700_000_000_000_001, seq: 12 }), "1700000000000001.12");
});

test("a session is deleted, exported and given a code by its own paths", async (t) => {
  const code = { code: "1234", number: "+1 555 0100", expires_s: 600 };
  const { requests } = await serve(t, (request, response) => {
    if (request.method === "DELETE") response.writeHead(204).end();
    else answerJson(response, code);
  });
  const api = new SessionApi(ID);
  await api.remove();
  assert.deepEqual(await api.callCode(), code);
  assert.deepEqual(requests.map(({ method, path }) => [method, path]), [["DELETE", PATH], ["POST", `${PATH}/call-code`]]);
  assert.equal(api.exportPath, `${PATH}/export`);
});

test("a page that may not begin a conversation says what to do, in words for people", async (t) => {
  await serve(t, (request, response) => answerJson(response, { error: "a key or a token is needed: Authorization: Bearer" }, 401));
  const error = await failure(SessionApi.create());
  assert.deepEqual([error.status, error.refused], [401, true]);
  assert.match(error.message, /Operators log in first\.$/);
  assert.doesNotMatch(error.message, /Bearer/);
});

for (const { status, body, text, gone = false, denied = false, refused = false } of [
  { status: 404, body: { error: "no such session" }, text: "The server reports: no such session.", gone: true },
  { status: 401, body: { error: "a token is required" }, text: "The server reports: a token is required.", denied: true, refused: true },
  { status: 403, body: { error: "not yours" }, text: "The server reports: not yours.", denied: true, refused: true },
  { status: 422, body: { error: [{ loc: ["body"] }] }, text: "The server reports: the server answered 422.", refused: true },
  { status: 503, body: { error: "the store is away" }, text: "The server reports: the store is away." },
]) {
  test(`an answer ${status} says what happened and whether it can be tried again`, async (t) => {
    await serve(t, (request, response) => answerJson(response, body, status));
    const error = await failure(new SessionApi(ID).info());
    assert.equal(error.message, text);
    assert.equal(error.status, status);
    assert.deepEqual([error.gone, error.denied, error.refused], [gone, denied, refused]);
  });
}

test("a failure whose body is no JSON is reported by its status", async (t) => {
  await serve(t, (request, response) => response.writeHead(502).end("<html>"));
  assert.equal((await failure(new SessionApi(ID).info())).message, "The server reports: the server answered 502.");
});

test("a server that is away is reported as such", async (t) => {
  const { stop } = await serve(t, () => {});
  await stop();
  const error = await failure(new SessionApi(ID).info());
  assert.equal(error.message, "The server cannot be reached.");
  assert.deepEqual([error.status, error.gone, error.denied, error.refused], [0, false, false, false]);
});

test("an answer that is no JSON is a failure of the request", async (t) => {
  await serve(t, (request, response) => response.writeHead(200).end("{"));
  await failure(new SessionApi(ID).info());
});

test("a typed turn is sent with its key, and its answer arrives as events up to the last one", async (t) => {
  const { requests } = await serveAnswer(t, [
    'event: turn\ndata: {"seq": 1}\n\n',
    'event: delta\ndata: {"text": "Hi "}\n\n',
    ": still here\n\n",
    'event: delta\ndata: {"text": "there"}\n\nevent: done\ndata: {"reply_id": "r", "text": "Hi there"}\n\n',
    'event: delta\ndata: {"text": "too late"}\n\n',
  ]);
  const events = await answer(new SessionApi(ID));
  assert.deepEqual(events, [
    { name: "turn", data: { seq: 1 } },
    { name: "delta", data: { text: "Hi " } },
    { name: "delta", data: { text: "there" } },
    { name: "done", data: { reply_id: "r", text: "Hi there" } },
  ]);
  const [{ method, path, headers, body }] = requests;
  assert.deepEqual([method, path, body], ["POST", `${PATH}/messages`, { text: "Hello" }]);
  assert.equal(headers["idempotency-key"], "key-1");
});

test("an answer may be cut anywhere on its way, also inside a letter", async (t) => {
  const bytes = Buffer.from('event: delta\ndata: {"text": "Grüße: ja"}\n\nevent: done\ndata: {"reply_id": "r"}\n\n');
  await serveAnswer(t, Array.from(bytes, (byte) => Buffer.from([byte])));
  assert.deepEqual((await answer(new SessionApi(ID)))[0], { name: "delta", data: { text: "Grüße: ja" } });
});

test("an error in the stream ends the answer with its text", async (t) => {
  await serveAnswer(t, ['event: delta\ndata: {"text": "Hi"}\n\n', 'event: error\ndata: {"error": "the model failed"}\n\n']);
  assert.equal((await failure(answer(new SessionApi(ID)))).message, "The server reports: the model failed.");
});

test("an answer that ends too early has broken off", async (t) => {
  await serveAnswer(t, ['event: delta\ndata: {"text": "Hi"}\n\n']);
  assert.equal((await failure(answer(new SessionApi(ID)))).message, "The answer broke off.");
});

test("the user can stop an answer that goes on", async (t) => {
  await serveAnswer(t, ['event: delta\ndata: {"text": "Hi"}\n\n'], { finish: false });
  const stop = new AbortController();
  const events = [];
  await failure(
    (async () => {
      for await (const event of new SessionApi(ID).say("Hello", "key-1", stop.signal)) {
        events.push(event.name);
        stop.abort();
      }
    })(),
  );
  assert.deepEqual(events, ["delta"]);
});

test("a refused turn has the status of the answer", async (t) => {
  await serve(t, (request, response) => answerJson(response, { error: "text: empty" }, 422));
  const error = await failure(answer(new SessionApi(ID)));
  assert.ok(error.refused);
  assert.equal(error.message, "The server reports: text: empty.");
});
