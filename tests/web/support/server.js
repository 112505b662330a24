// A server of HTTP on this machine, and the browser's requests to paths of it.

import { once } from "node:events";
import { createServer } from "node:http";
import { setGlobal } from "./page.js";

const { fetch: fetchAddress, EventSource: AddressSource } = globalThis;

/**
 * Serve `answer(request, response)` until the test is over; `request.body` is the JSON that was sent. Return the address and
 * the requests so far.
 */
export async function serve(test, answer) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    request.body = text ? JSON.parse(text) : undefined;
    requests.push({ method: request.method, path: request.url, headers: request.headers, body: request.body });
    await answer(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const stop = async () => {
    server.closeAllConnections();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  test.after(stop);
  const origin = `http://127.0.0.1:${server.address().port}`;
  useOrigin(origin);
  return { origin, requests, stop };
}

/** Let paths be those of a server, as in a page that it has served. */
export function useOrigin(origin) {
  setGlobal("fetch", (path, options) => fetchAddress(new URL(path, origin), options));
  setGlobal(
    "EventSource",
    class extends AddressSource {
      constructor(path) {
        super(new URL(path, origin).href);
      }
    },
  );
}

/** Answer with JSON. */
export function answerJson(response, body, status = 200) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
