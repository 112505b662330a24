import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import * as api from "../../web/shared/admin_api.js";

test.beforeEach(() => openPage());

const echo = (t) => serve(t, (request, response) => answerJson(response, { success: true }));

for (const [title, change, expected] of [
  ["logging in sends the token", () => api.logIn("secret"), ["POST", "/api/admin/session", { token: "secret" }]],
  ["logging out deletes the login", () => api.logOut(), ["DELETE", "/api/admin/session", undefined]],
  ["an app is switched by its id", () => api.switchApp("a/b", false), ["PUT", "/api/admin/apps/a%2Fb", { enabled: false }]],
  ["a caller is removed by the ticket", () => api.takeOut("t 1"), ["DELETE", "/api/queue/t%201", undefined]],
  [
    "only changed estimates are sent",
    () => api.setEstimates({ eta_chat_s: 30 }),
    ["PUT", "/api/config/eta", { eta_chat_s: 30 }],
  ],
  ["a call is ended by its id", () => api.endCall("a/b"), ["DELETE", "/api/admin/calls/a%2Fb", undefined]],
  [
    "retention is run with what it is to do",
    () => api.runRetention(true),
    ["POST", "/api/admin/storage/retention", { dry_run: true }],
  ],
  ["a voice is deleted by its id", () => api.removeVoice("v?1"), ["DELETE", "/api/assets/ref_audio/v%3F1", undefined]],
  [
    "a voice is added with its name",
    () => api.addVoice("Ada", "data:audio/wav;base64,AA=="),
    ["POST", "/api/assets/ref_audio", { name: "Ada", audio_base64: "data:audio/wav;base64,AA==" }],
  ],
]) {
  test(title, async (t) => {
    const { requests } = await echo(t);
    assert.deepEqual(await change(), { success: true });
    const [{ method, path, body, headers }] = requests;
    assert.deepEqual([method, path, body], expected);
    assert.equal(headers["content-type"], body === undefined ? undefined : "application/json");
  });
}

test("a document is deleted by its path, and the folder is read again", async (t) => {
  const { requests } = await echo(t);
  await api.removeDocument("fees/a&b.md");
  await api.readDocuments();
  assert.deepEqual(
    requests.map(({ method, path }) => [method, path]),
    [["DELETE", "/api/admin/documents?name=fees%2Fa%26b.md"], ["POST", "/api/admin/documents/reading"]],
  );
});

test("a document is added as it is", async (t) => {
  const { requests } = await echo(t);
  await api.addDocument(Object.assign(new Blob(['["Fees"]']), { name: "my fees.md" }));
  const [{ method, path, body }] = requests;
  assert.deepEqual([method, path, body], ["PUT", "/api/admin/documents?name=my%20fees.md", ["Fees"]]);
});

test("a refresh gathers the state of the server from its parts", async (t) => {
  const parts = {
    "/status": { calls: 3 },
    "/workers": { total: 1, workers: [{ worker_id: "w1" }] },
    "/api/queue": { queue_length: 1, items: [{ ticket_id: "t1" }] },
    "/api/admin/apps": { apps: [{ app_id: "browser" }] },
    "/api/config/eta": { config: { ema_alpha: 0.3 } },
    "/api/assets/ref_audio": { total: 1, ref_audios: [{ id: "v1" }] },
    "/api/admin/documents": { documents: [], passages: 7 },
    "/api/admin/usage": { currency: "USD", models: [], calls: [] },
    "/api/admin/calls": { can_listen: true, calls: [] },
    "/api/admin/storage": { job: "" },
    "/api/admin/failures": { failures: [] },
  };
  await serve(t, (request, response) => answerJson(response, parts[request.url]));
  assert.deepEqual(await api.look(), {
    status: { calls: 3 },
    workers: [{ worker_id: "w1" }],
    queue: [{ ticket_id: "t1" }],
    apps: [{ app_id: "browser" }],
    estimates: { config: { ema_alpha: 0.3 } },
    voices: [{ id: "v1" }],
    library: { documents: [], passages: 7 },
    usage: { currency: "USD", models: [], calls: [] },
    live: { can_listen: true, calls: [] },
    storage: { job: "" },
    failures: { failures: [] },
  });
});

test("one part that is refused fails the refresh with its status", async (t) => {
  await serve(t, (request, response) => {
    if (request.url === "/api/admin/apps") answerJson(response, { error: "for the operator" }, 403);
    else answerJson(response, {});
  });
  await assert.rejects(api.look(), (error) => error instanceof api.ApiError && error.status === 403);
});

test("an answer that breaks off is an ApiError, which the page can show", async (t) => {
  await serve(t, (request, response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
    response.write('{"is_operator":');
    setImmediate(() => response.destroy());
  });
  await assert.rejects(api.operator(), api.ApiError);
});
