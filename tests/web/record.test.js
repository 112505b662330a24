import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { Bubbles } from "../../web/shared/bubbles.js";
import { translate } from "../../web/shared/language.js";
import { DECLINE, SessionRecord, lastTurns } from "../../web/shared/record.js";

const AT_US = 1_700_000_000_000_000;
const event = (kind, seq, payload, { key = `k${seq}`, offsetUs = seq } = {}) => ({ kind, seq, key, event_us: AT_US + offsetUs, payload });
const user = (seq, text, { payload = {}, ...options } = {}) => event("user_turn", seq, { text, transport: "text", ...payload }, options);
const bot = (seq, id, text, more = {}) => event("bot_turn", seq, { reply_id: id, text, ...more });

function shown() {
  openPage();
  const root = document.createElement("div");
  const record = new SessionRecord(new Bubbles(root));
  return {
    record,
    root,
    texts: () => [...root.querySelectorAll(".bubble")].map(({ textContent }) => textContent),
  };
}

test("the end of a list of events holds a number of turns", () => {
  const events = [user(1, "a"), event("state", 2, {}), bot(3, "r1", "b"), event("heard", 4, {}), user(5, "c")];
  assert.deepEqual(lastTurns(events, 2).map(({ seq }) => seq), [3, 4, 5]);
  assert.deepEqual(lastTurns(events, 9), events);
});

test("turns are in the order of their time, not of their commit", () => {
  const { record, texts } = shown();
  record.take(user(1, "second", { offsetUs: 20 }));
  record.take(user(2, "first", { offsetUs: 10 }));
  assert.deepEqual(texts(), ["first", "second"]);
});

test("the part of a reply that is heard grows until the reply is over", () => {
  const { record, root, texts } = shown();
  record.take(event("heard", 1, { reply_id: "r1", text: "One" }));
  record.take(event("heard", 2, { reply_id: "r1", text: "One two" }));
  assert.deepEqual(texts(), ["One two"]);
  assert.equal(root.firstElementChild.dataset.final, "false");
  record.take(bot(3, "r1", "One two three"));
  record.take(event("heard", 4, { reply_id: "r1", text: "One two" }));
  assert.deepEqual(texts(), ["One two three"]);
  assert.equal(root.firstElementChild.dataset.final, "true");
});

test("an interrupted reply shows the words that were not heard", () => {
  const { record, root } = shown();
  record.take(bot(1, "r1", "One", { truncated: true, unheard: "two three", transport: "twilio" }));
  assert.equal(root.querySelector("s.unheard").textContent, "two three");
  assert.equal(root.querySelector(".cut").textContent, "cut off");
  assert.equal(root.querySelector('[data-role="via"]').textContent, "phone");
});

test("a turn that was typed in a call does not claim to be spoken", () => {
  const { record, root } = shown();
  record.take(user(1, "spoken", { payload: { transport: "webrtc" } }));
  record.take(user(2, "typed", { payload: { transport: "webrtc", typed: true } }));
  const badges = [...root.querySelectorAll('[data-role="user-turn"]')].map((item) => item.querySelector(".via")?.textContent);
  assert.deepEqual(badges, ["voice", undefined]);
});

const FEES = { document: "Fee schedule", heading: "Cards abroad", number: 4 };

test("the passages of an answer are folded below it, also when the answer has just come", () => {
  const { record, root } = shown();
  const cited = () => [...root.querySelectorAll('[data-role="passages"] li')].map(({ textContent }) => textContent);
  record.take(bot(1, "r1", "1.5 percent.", { passages: [FEES, { ...FEES, heading: "Fee schedule" }] }));
  assert.deepEqual(cited(), ["Fee schedule: Cards abroad", "Fee schedule"]);
  const fold = root.querySelector('[data-role="passages"]');
  assert.equal(fold.open, false);
  assert.equal(fold.querySelector("summary").textContent, "2 passages");
  assert.equal(fold.querySelector("li").title, "passage 4 of the document");
  record.take(bot(1, "r1", "1.5 percent."));
  assert.deepEqual(cited(), []);
  record.ask("k", "And here?");
  record.answer("k", { reply_id: "reply.k", text: "Nothing.", passages: [FEES] });
  assert.deepEqual(cited(), ["Fee schedule: Cards abroad"]);
});

test("passages of an imported session that are none are not shown", () => {
  const { record, root, texts } = shown();
  record.take(bot(1, "r1", "One", { passages: 5 }));
  record.take(bot(2, "r2", "Two", { passages: [null, { heading: "x" }] }));
  assert.deepEqual(texts(), ["One", "Two"]);
  assert.equal(root.querySelector('[data-role="passages"]'), null);
});

test("the beginning and the end of a call are lines, once each", () => {
  const { record, root } = shown();
  const joined = event("joined", 1, { transport: "webrtc" });
  record.take(joined);
  record.take(joined);
  record.take(event("left", 2, { transport: "webrtc" }));
  const lines = [...root.querySelectorAll('[data-role="note"]')].map(({ textContent }) => textContent.replace(/,.*/, ""));
  assert.deepEqual(lines, ["Voice call began", "Voice call ended"]);
});

test("a typed turn and its streamed answer are settled by their events and not shown twice", () => {
  const { record, root, texts } = shown();
  record.ask("key-1", "Hello");
  record.piece("key-1", "Hi ");
  record.piece("key-1", "there");
  assert.deepEqual(texts(), ["Hello", "Hi there"]);
  assert.ok(!record.isAnswered("key-1"));
  record.answer("key-1", { reply_id: "reply.key-1", text: "Hi there" });
  assert.ok(record.isAnswered("key-1"));
  record.take(user(1, "Hello", { key: "key-1" }));
  record.take(bot(2, "reply.key-1", "Hi there"));
  assert.deepEqual(texts(), ["Hello", "Hi there"]);
  assert.equal(root.querySelector("[aria-hidden]"), null);
});

test("an answer whose event came first under another id is shown once", () => {
  const { record, texts } = shown();
  record.ask("key-1", "Hello");
  record.piece("key-1", "Hi");
  record.take(user(1, "Hello", { key: "key-1" }));
  record.take(bot(2, "server-id", "Hi"));
  record.answer("key-1", { reply_id: "server-id", text: "Hi" });
  assert.deepEqual(texts(), ["Hello", "Hi"]);
});

test("a committed turn of another transport comes before one that is pending", () => {
  const { record, texts } = shown();
  record.ask("key-1", "typed");
  record.take(user(1, "spoken"));
  assert.deepEqual(texts(), ["spoken", "typed"]);
});

test("a turn without an answer can be sent again, and an answer removes the offer", () => {
  const { record, root, texts } = shown();
  let retries = 0;
  record.ask("key-1", "Hello");
  record.failed("key-1", "Not answered.", () => (retries += 1));
  assert.equal(root.querySelector(".failed").textContent, "Not answered.");
  root.querySelector('[data-role="retry"]').click();
  assert.equal(retries, 1);
  record.answer("key-1", { reply_id: "reply.key-1", text: "Hi" });
  assert.equal(root.querySelector('[data-role="retry"]'), null);
  assert.deepEqual(texts(), ["Hello", "Hi"]);
});

test("sending a turn again drops the part of the answer that had arrived", () => {
  const { record, texts } = shown();
  record.ask("key-1", "Hello");
  record.piece("key-1", "Hi th");
  record.failed("key-1", "Not answered.", () => {});
  record.ask("key-1", "Hello");
  assert.deepEqual(texts(), ["Hello"]);
  record.piece("key-1", "Hi");
  assert.deepEqual(texts(), ["Hello", "Hi"]);
});

test("an answer that the user stops keeps what had arrived", () => {
  const { record, root, texts } = shown();
  record.ask("key-1", "Hello");
  assert.equal(record.stop("key-1"), false);
  record.piece("key-1", "Hi th");
  assert.equal(record.stop("key-1"), true);
  assert.deepEqual(texts(), ["Hello", "Hi th"]);
  assert.equal(root.lastElementChild.dataset.cut, "true");
});

test("a refused turn disappears", () => {
  const { record, root } = shown();
  record.ask("key-1", "Hello");
  record.withdraw("key-1");
  assert.equal(root.childElementCount, 0);
});

test("of a long record the end is shown, and earlier turns on demand", () => {
  const { record, texts } = shown();
  record.fill(true);
  for (let seq = 1; seq <= 250; seq += 1) record.take(user(seq, `text ${seq}`));
  assert.deepEqual(texts(), []);
  record.fill(false);
  assert.deepEqual([texts().length, texts()[0]], [100, "text 151"]);
  assert.ok(record.hasEarlier);
  record.showEarlier();
  record.showEarlier();
  assert.deepEqual([texts().length, texts()[0]], [250, "text 1"]);
  assert.ok(!record.hasEarlier);
});

test("a record that grows for hours keeps its last 400 entries in the page, and the rest on demand", () => {
  const { record, texts } = shown();
  for (let seq = 1; seq <= 450; seq += 1) record.take(user(seq, `text ${seq}`));
  assert.deepEqual([texts().length, texts()[0]], [400, "text 51"]);
  record.showEarlier();
  assert.deepEqual([texts().length, texts()[0]], [450, "text 1"]);
});

test("the camera that goes on and off is a line each", () => {
  const { record, root } = shown();
  record.take(event("joined", 1, { transport: "camera" }));
  record.take(event("left", 2, { transport: "camera" }));
  const [on, off] = root.querySelectorAll('[data-role="note"]');
  assert.match(on.textContent, /^The camera is on, /);
  assert.match(off.textContent, /^The camera is off, /);
});

test("a screen that is shared is a line, and so is a step that was offered and not taken", () => {
  const { record, root } = shown();
  const lines = [
    ["joined", { transport: "screen" }, /^A screen is shared, /],
    ["left", { transport: "screen" }, /^The screen is no longer shared, /],
    ["tier", { tier: "step_offered", epoch: 1, reason: "step_offered", to: "video" }, /^A camera was offered, /],
    ["tier", { tier: "stepping", epoch: 2, reason: "accepted", to: "video" }, null],
    ["tier", { tier: "agent", epoch: 3, reason: "failed", to: "video" }, /^A camera: not possible, /],
    ["tier", { tier: "agent", epoch: 4, reason: "declined", to: "text" }, /^Writing: not wanted, /],
    // A human took the session in the middle of a step.
    ["tier", { tier: "human", epoch: 5, reason: "taken", to: "text" }, /^A colleague took over, /],
  ];
  lines.forEach(([kind, payload], at) => record.take(event(kind, at + 1, payload)));
  const texts = [...root.querySelectorAll('[data-role="note"]')].map((each) => each.textContent);
  const expected = lines.map(([, , line]) => line).filter(Boolean);
  assert.equal(texts.length, expected.length, texts.join("; "));
  expected.forEach((line, at) => assert.match(texts[at], line));
});

test("the words of a human are marked as theirs, and a change of the tier is a line", () => {
  const { record, root } = shown();
  record.take(event("tier", 1, { tier: "human", epoch: 2, reason: "taken" }));
  record.take(bot(2, "r1", "I am here.", { by: "human" }));
  record.take(bot(3, "r2", "Back again."));
  record.take(event("tier", 4, { tier: "agent", epoch: 4, reason: "replied" }));
  assert.match(root.querySelector('[data-role="note"]').textContent, /^A colleague took over, /);
  assert.equal(root.querySelectorAll('[data-role="note"]').length, 1);
  const [human, agent] = root.querySelectorAll('[data-role="bot-turn"]');
  assert.equal(human.querySelector(".unseen").textContent, "A colleague: ");
  assert.equal(human.querySelector(".by").textContent, "colleague");
  assert.equal(agent.querySelector(".by"), null);
  assert.equal(agent.dataset.by, undefined);
});

test("a desk shows what was perceived and the note for the model; the caller's page does not", () => {
  const turn = event("user_turn", 1, { text: "This is fine.", rendered: "[tense] This is fine. [tense]" });
  const change = event("tier", 2, { tier: "back", epoch: 3, reason: "returned", note: "Card 42 is blocked." });
  const caller = shown();
  const desk = { root: document.createElement("div") };
  const record = new SessionRecord(new Bubbles(desk.root), { perceived: true });
  for (const each of [turn, change]) {
    caller.record.take(each);
    record.take(each);
  }
  assert.deepEqual([...desk.root.querySelectorAll('[data-role="tag"]')].map(({ textContent }) => textContent), ["tense"]);
  assert.match(desk.root.querySelector('[data-role="note"]').textContent, /“Card 42 is blocked\.”/);
  assert.equal(caller.root.querySelector('[data-role="tag"]'), null);
  assert.doesNotMatch(caller.root.textContent, /Card 42/);
});

test("in another language notes and names are written anew, and so is the button's refusal of an offer", () => {
  const window = openPage({ languages: ["en"] });
  document.documentElement.dataset.translated = "";
  const root = document.createElement("div");
  document.body.append(root);
  const record = new SessionRecord(new Bubbles(root));
  record.take(event("tier", 1, { tier: "human", epoch: 2, reason: "taken" }));
  record.take(user(2, DECLINE));
  record.take(bot(3, "r1", "All right.", { truncated: true }));
  const said = root.querySelector('[data-role="user-turn"]');
  assert.equal(said.querySelector(".bubble").textContent, DECLINE);
  window.localStorage.setItem("parley.language", "de");
  translate(document);
  assert.equal(said.querySelector(".unseen").textContent, "Sie: ");
  assert.equal(said.querySelector(".bubble").textContent, "Nein, lieber nicht.");
  // What was said is what the server read.
  assert.equal(said.querySelector(".bubble span").title, DECLINE);
  assert.doesNotMatch(root.querySelector('[data-role="note"]').textContent, /colleague/);
  assert.notEqual(root.querySelector(".cut").textContent, "cut off");
});
