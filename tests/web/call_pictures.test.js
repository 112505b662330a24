import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal, until } from "./support/page.js";
import { Bubbles } from "../../web/shared/bubbles.js";

/** Pictures of the call page. Its module looks for its parts of the page when it is loaded, once. */
async function opened() {
  const window = openPage({ file: "index.html" });
  setGlobal("navigator", window.navigator);
  setGlobal("createImageBitmap", async () => ({ width: 40, height: 20, close: () => {} }));
  const { CallPictures } = await import("../../web/shared/call_pictures.js");
  const conversation = document.querySelector('[data-role="conversation"]');
  const pictures = new CallPictures(new Bubbles(conversation), () => {});
  return {
    pictures,
    conversation,
    part: (role) => document.querySelector(`[data-role="${role}"]`),
    paste: (...types) => {
      const event = new window.Event("paste", { cancelable: true });
      event.clipboardData = { files: types.map((type) => ({ type, name: type })) };
      document.querySelector('[data-role="typed"]').dispatchEvent(event);
    },
  };
}

test("pictures are offered where the model reads them, sent before their text, and leave when they are refused", async () => {
  const { pictures, conversation, part, paste } = await opened();
  paste("image/png");
  pictures.offer(false);
  assert.deepEqual([part("attach").hidden, pictures.empty], [true, true]);

  pictures.offer(true);
  paste("image/png", "text/plain", "image/jpeg");
  await until(() => part("attached").childElementCount === 2);
  assert.deepEqual([part("attach").hidden, pictures.empty], [false, false]);

  const sent = [];
  const call = { show: (picture) => String(sent.push([picture.width, picture.height])) };
  pictures.send(call, { withText: false });
  assert.deepEqual(sent, [[40, 20], [40, 20]]);
  assert.equal(pictures.empty, true);
  const [turn] = conversation.children;
  assert.match(turn.textContent, /Goes with your next words/);
  assert.equal(turn.querySelectorAll("img").length, 2);

  pictures.take({ type: "error-response", id: "1", data: { error: "no picture" } });
  pictures.take({ type: "error-response", id: "9", data: { error: "another message" } });
  assert.equal(turn.querySelectorAll("img").length, 1);
  pictures.take({ type: "error-response", id: "2", data: { error: "no picture" } });
  assert.equal(conversation.childElementCount, 0);
});
