import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { SessionApi } from "../../web/shared/session_api.js";
import { SessionTags } from "../../web/shared/session_tags.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";

/** The tags of a session's page, for an operator or for another reader. */
async function shown(context, { isOperator = true, refusal = "" } = {}) {
  const window = openPage({ file: "session.html" });
  const { requests } = await serve(context, (request, response) => {
    if (request.url === "/api/admin/session") answerJson(response, { is_operator: isOperator, token_env: "T" });
    else if (refusal) answerJson(response, { error: refusal }, 409);
    else answerJson(response, { tags: request.method === "POST" ? ["bill", request.body.tag] : ["bill"] });
  });
  const root = document.querySelector('[data-role="tags"]');
  const tags = new SessionTags(new SessionApi(ID), root);
  const part = (role) => root.querySelector(`[data-role="${role}"]`);
  return {
    root,
    tags,
    part,
    requests,
    named: () => [...part("tag-list").children].map((item) => item.firstChild.textContent),
    add: (tag) => {
      part("tag-typed").value = tag;
      part("tag-form").dispatchEvent(new window.Event("submit", { cancelable: true }));
    },
  };
}

test("only an operator sees the tags", async (context) => {
  const operator = await shown(context);
  await until(() => !operator.root.hidden);
  const reader = await shown(context, { isOperator: false });
  await until(() => reader.requests.length === 1);
  assert.equal(reader.root.hidden, true);
});

test("the newest event names the tags", async (context) => {
  const { tags, named } = await shown(context);
  tags.take({ kind: "tags", seq: 7, payload: { tags: ["a", "b"] } });
  tags.take({ kind: "tags", seq: 3, payload: { tags: ["a"] } });
  tags.take({ kind: "usage", seq: 9, payload: {} });
  assert.deepEqual(named(), ["a", "b"]);
});

test("a tag is added and removed at the server, which says what there is then", async (context) => {
  const { part, requests, named, add } = await shown(context);
  add(" urgent ");
  await until(() => named().length === 2);
  assert.deepEqual([named(), part("tag-typed").value], [["bill", "urgent"], ""]);
  part("tag-list").lastElementChild.querySelector("button").click();
  await until(() => named().length === 1);
  const changes = requests.filter(({ path }) => path.includes("/tags")).map(({ method, path }) => [method, path]);
  assert.deepEqual(changes, [
    ["POST", `/api/sessions/${ID}/tags`],
    ["DELETE", `/api/sessions/${ID}/tags?tag=urgent`],
  ]);
});

test("a refused tag stays typed, with the reason", async (context) => {
  const { part, add } = await shown(context, { refusal: "this session has 20 tags already" });
  add("urgent");
  await until(() => !part("tag-notice").hidden);
  assert.match(part("tag-notice").textContent, /20 tags/);
  assert.equal(part("tag-typed").value, "urgent");
});
