import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage, until } from "./support/page.js";

const window = openPage({ file: "omni.html" });
// It looks at the page when it is loaded.
const { OmniTyping } = await import("../../web/shared/omni_typing.js");
const part = (role) => document.querySelector(`[data-role="${role}"]`);
const PICTURE = { close: () => {}, width: 10, height: 5 };

/** What was sent to a server that accepts it, or not. */
const server = { accepts: true, sent: [] };
const made = new OmniTyping({
  send: (text, pictures) => server.accepts && Boolean(server.sent.push([text, pictures.length])),
  refused: () => {},
});

const submit = () => part("typing").dispatchEvent(new window.Event("submit", { cancelable: true }));
function type(text) {
  part("typed").value = text;
  part("typed").dispatchEvent(new window.Event("input"));
}

beforeEach(() => {
  Object.assign(server, { accepts: true, sent: [] });
  made.offer(null);
  type("");
});

test("the field is shown where the engine takes text, and its clip where it sees", () => {
  assert.equal(part("typing").hidden, true);
  made.offer({ takes: ["text"] });
  assert.deepEqual([part("typing").hidden, part("attach").hidden], [false, true]);
  made.offer({ takes: ["text", "pictures"] });
  assert.equal(part("attach").hidden, false);
  made.offer({});
  assert.equal(part("typing").hidden, true);
});

test("a text is sent once, and stays where it could not be sent", () => {
  made.offer({ takes: ["text"] });
  made.permit(true);
  assert.equal(part("send").disabled, true);
  type(" When? ");
  assert.equal(part("send").disabled, false);
  submit();
  assert.deepEqual(server.sent[0], ["When?", 0]);
  assert.equal(part("typed").value, "");
});

test("nothing is sent while the conversation is paused or its connection is lost", () => {
  made.offer({ takes: ["text"] });
  made.permit(false);
  type("When?");
  submit();
  assert.deepEqual([server.sent, part("typed").value, part("send").disabled], [[], "When?", true]);
});

test("a picture without a text is sent, and is back where it could not be", async () => {
  globalThis.createImageBitmap = async () => PICTURE;
  window.HTMLCanvasElement.prototype.getContext = () => ({ drawImage: () => {} });
  window.HTMLCanvasElement.prototype.toDataURL = () => "data:image/jpeg;base64,AAAA";
  server.accepts = false;
  made.offer({ takes: ["text", "pictures"] });
  made.permit(true);
  const drop = Object.assign(new window.Event("drop", { cancelable: true }), { dataTransfer: { files: [{ type: "image/png", name: "a.png" }] } });
  part("typing").dispatchEvent(drop);
  await until(() => !part("attached").hidden);
  submit();
  assert.deepEqual([server.sent, part("attached").childElementCount], [[], 1]);
});
