import assert from "node:assert/strict";
import test from "node:test";

import { operationsOf, withoutReferences } from "../../web/shared/api_routes.js";

const turn = { type: "object", properties: { next: { $ref: "#/components/schemas/Turn" } } };
const description = {
  info: {},
  tags: [{ name: "Health" }, { name: "Sessions" }, { name: "Sockets" }],
  paths: {
    "/api/sessions": {
      post: {
        tags: ["Sessions"],
        summary: "Create a session.",
        description: "Create a session.\n\nIt is unguessable.",
        "x-audience": "client",
        parameters: [{ name: "after", in: "query", schema: { type: "string" } }],
        requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/Turn" } } } },
        responses: { 201: { content: { "application/json": { schema: { type: "object" } } } }, default: {} },
      },
    },
    "/health": { get: { tags: ["Health"], summary: "Say that it runs.", responses: {} } },
  },
  components: { schemas: { Turn: turn } },
  "x-sockets": [{ path: "/ws", summary: "Hold a call.", "x-audience": "client" }],
};

test("routes are in the order of the sections, and sockets among them", () => {
  const found = operationsOf(description);
  assert.deepEqual(
    found.map(({ method, path, section }) => [method, path, section]),
    [
      ["GET", "/health", "Health"],
      ["POST", "/api/sessions", "Sessions"],
      ["WebSocket", "/ws", "Sockets"],
    ],
  );
  assert.deepEqual(
    found[1].parts.map(([title]) => title),
    ["Parameters", "Body, application/json", "Answer 201"],
  );
});

test("a model that names itself ends at its name", () => {
  let inside = withoutReferences({ $ref: "#/components/schemas/Turn" }, description);
  let depth = 0;
  while (typeof inside === "object") {
    inside = inside.properties.next;
    depth += 1;
  }
  assert.deepEqual([inside, depth], ["Turn", 4]);
});
