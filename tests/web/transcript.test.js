import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { Bubbles } from "../../web/shared/bubbles.js";
import { Transcript } from "../../web/shared/transcript.js";

/** A transcript, and what a user sees of it. */
function call() {
  openPage();
  const root = document.createElement("div");
  const transcript = new Transcript(new Bubbles(root));
  const say = (type, data) => transcript.take({ type, data });
  return {
    transcript,
    say,
    hear: (text, final = false) => say("user-input", { text, final }),
    sentence: (id, text) => say("bot-output", { text, spoken: false, segment_id: id }),
    spoken: (id, text) => say("bot-output", { text, spoken: true, segment_id: id }),
    heard: (text, unheard = "", more = {}) =>
      say("server-message", { kind: "heard", text, unheard, truncated: Boolean(unheard), in_context: true, ...more }),
    turn: (record) => say("server-message", { kind: "turn", ...record }),
    users: () => [...root.querySelectorAll('[data-role="user-turn"] .bubble')].map(({ textContent }) => textContent),
    replies: () => [...root.querySelectorAll('[data-role="bot-turn"] .bubble')].map(({ textContent }) => textContent.trim()),
    words: (state) => [...root.querySelectorAll(`.word.${state}`)].map(({ textContent }) => textContent),
    root,
  };
}

test("guesses are replaced until the words are final", () => {
  const { hear, root, users } = call();
  hear("what");
  hear("what is");
  assert.deepEqual(users(), ["what is"]);
  assert.equal(root.firstElementChild.dataset.final, "false");
  hear("What is that?", true);
  assert.deepEqual(users(), ["What is that?"]);
  assert.equal(root.firstElementChild.dataset.final, "true");
});

test("the parts of one turn are one bubble", () => {
  const { hear, users } = call();
  hear("I would like", true);
  hear("to");
  assert.deepEqual(users(), ["I would like to"]);
  hear("to book a table.", true);
  assert.deepEqual(users(), ["I would like to book a table."]);
});

test("a guess is not read out by a screen reader", () => {
  const { hear, root } = call();
  hear("what");
  assert.equal(root.querySelector(".interim").getAttribute("aria-hidden"), "true");
});

test("a user who speaks again after a stop begins a new bubble", () => {
  const { hear, say, users } = call();
  say("user-started-speaking");
  hear("First.", true);
  say("user-stopped-speaking");
  say("user-started-speaking");
  hear("Second.", true);
  assert.deepEqual(users(), ["First.", "Second."]);
});

test("words that arrive after the user stopped still belong to the turn", () => {
  const { hear, say, users } = call();
  say("user-started-speaking");
  hear("Book a");
  say("user-stopped-speaking");
  hear("Book a table.", true);
  assert.deepEqual(users(), ["Book a table."]);
});

test("typed text is a bubble of its own and drops the guess", () => {
  const { hear, say, users } = call();
  hear("uhm");
  say("user-input", { text: "typed", input_type: "chat" });
  assert.deepEqual(users(), ["typed"]);
});

test("a sentence is shown before it is spoken, and its words light up as they are heard", () => {
  const { sentence, spoken, replies, words } = call();
  sentence(1, "It is four o'clock.");
  assert.deepEqual(replies(), ["It is four o'clock."]);
  assert.deepEqual(words("spoken"), []);
  spoken(1, "It is");
  assert.deepEqual(words("spoken"), ["It", "is"]);
});

test("a word that is pronounced in another way than it is written is stepped over", () => {
  const { sentence, spoken, words } = call();
  sentence(1, "Dr. Miller is in.");
  spoken(1, "Doctor");
  assert.deepEqual(words("spoken"), ["Dr."]);
  spoken(1, "is");
  assert.deepEqual(words("spoken"), ["Dr.", "Miller", "is"]);
});

test("sentences of one reply share a bubble, and each lights up by itself", () => {
  const { sentence, spoken, replies, words } = call();
  sentence(1, "Yes it is.");
  sentence(2, "It is red.");
  spoken(2, "It");
  assert.deepEqual(replies(), ["Yes it is. It is red."]);
  assert.deepEqual(words("spoken"), ["It"]);
});

test("a sentence without word times appears once it was spoken", () => {
  const { spoken, replies, words } = call();
  spoken(1, "All at once.");
  assert.deepEqual(replies(), ["All at once."]);
  assert.deepEqual(words("spoken"), ["All", "at", "once."]);
});

test("an interrupted reply shows what was not heard", () => {
  const { root, say, sentence, spoken, words } = call();
  sentence(1, "The first is red.");
  spoken(1, "The first");
  say("bot-interrupted");
  assert.deepEqual(words("unheard"), ["is", "red."]);
  assert.equal(root.querySelector('[data-role="bot-turn"]').dataset.cut, "true");
  assert.equal(root.querySelector(".cut").textContent, "cut off");
});

test("a reply of which nothing was heard was not said", () => {
  const { say, sentence, replies } = call();
  sentence(1, "Never mind.");
  say("bot-interrupted");
  assert.deepEqual(replies(), []);
});

test("a filler that was heard before a reply that was cut counts as heard", () => {
  const { heard, sentence, spoken, say, words } = call();
  sentence(1, "Okay.");
  sentence(2, "The zebra counter is open from nine to five.");
  spoken(2, "The zebra counter is");
  say("bot-interrupted");
  assert.deepEqual(words("unheard"), ["Okay.", "open", "from", "nine", "to", "five."]);
  heard("Okay.", "", { in_context: false });
  heard("The zebra counter is open", "from nine to five.");
  assert.deepEqual(words("unheard"), ["from", "nine", "to", "five."]);
  assert.deepEqual(words("spoken"), ["Okay.", "The", "zebra", "counter", "is", "open"]);
});

test("a sentence that the page did not hear of before it was cut is shown as far as it was heard", () => {
  const { heard, hear, replies, root, say, turn, words } = call();
  say("user-started-speaking");
  hear("Wait");
  say("bot-interrupted");
  heard("Hello,", "I am Bea.");
  assert.deepEqual(replies(), ["Hello, I am Bea."]);
  assert.deepEqual([words("spoken"), words("unheard")], [["Hello,"], ["I", "am", "Bea."]]);
  assert.deepEqual([...root.children].map(({ dataset }) => dataset.role), ["bot-turn", "user-turn"]);
  assert.equal(root.firstElementChild.dataset.cut, "true");
  turn({ user_text: "", interrupted: true, spans: {} });
  assert.deepEqual(words("unheard"), ["I", "am", "Bea."]);
});

test("a reply whose words came too late returns to its place when the server has heard some", () => {
  const { heard, hear, replies, root, say, sentence, words } = call();
  say("user-input", { text: "typed", input_type: "chat" });
  sentence(1, "Hello, I am Bea.");
  say("bot-interrupted");
  hear("Wait.", true);
  assert.deepEqual(replies(), []);
  heard("Hello,", "I am Bea.");
  assert.deepEqual(words("unheard"), ["I", "am", "Bea."]);
  assert.deepEqual([...root.children].map(({ dataset }) => dataset.role), ["user-turn", "bot-turn", "user-turn"]);
});

test("a word that left the server and was not heard any more is not shown as heard", () => {
  const { heard, sentence, spoken, say, words } = call();
  sentence(1, "Are you still there?");
  spoken(1, "Are you still there?");
  say("bot-interrupted");
  heard("Are you still", "there?");
  assert.deepEqual([words("spoken"), words("unheard")], [["Are", "you", "still"], ["there?"]]);
});

test("a reply that was shown and heard whole is not shown again by its record", () => {
  const { heard, replies, root, sentence, spoken, say, turn } = call();
  sentence(1, "It is red.");
  spoken(1, "It is");
  say("bot-interrupted");
  heard("It is red.");
  turn({ user_text: "What colour?", interrupted: false, spans: {} });
  heard("Hm.", "", { in_context: false });
  assert.deepEqual(replies(), ["It is red."]);
  assert.equal(root.querySelector(".cut"), null);
});

test("a reply that was heard to its end is not cut off by a late interruption", () => {
  const { root, say, sentence, spoken } = call();
  sentence(1, "Yes.");
  spoken(1, "Yes.");
  say("bot-interrupted");
  assert.equal(root.querySelector(".cut"), null);
});

test("a late word of an interrupted reply begins no bubble", () => {
  const { say, sentence, spoken, replies } = call();
  sentence(1, "The first is red.");
  spoken(1, "The");
  say("bot-interrupted");
  spoken(1, "first");
  assert.deepEqual(replies(), ["The first is red."]);
});

test("a reply ends the turn of the user", () => {
  const { hear, sentence, users } = call();
  hear("One.", true);
  sentence(1, "Yes?");
  hear("Two.", true);
  assert.deepEqual(users(), ["One.", "Two."]);
});

test("a complete reply counts as heard, and the time of the answer is below it", () => {
  const { root, sentence, spoken, turn, words } = call();
  sentence(1, "It is red.");
  spoken(1, "It");
  const spans = { stt_final: 100.4, endpoint_wait: 200, tts_first_audio: 99.9 };
  turn({ user_text: "What colour?", interrupted: false, spans, endpoint_silence_ms: 300 });
  assert.deepEqual(words("spoken"), ["It", "is", "red."]);
  const chip = root.querySelector('[data-role="answered-in"]');
  assert.equal(chip.querySelector("summary").textContent, "answered in 400 ms");
  assert.deepEqual([...chip.querySelectorAll("dd")].map(({ textContent }) => textContent), ["100 ms", "200 ms", "100 ms"]);
  assert.match(chip.textContent, /300 ms of silence/);
});

test("a greeting and a turn without times have no time of an answer", () => {
  const { root, sentence, turn } = call();
  sentence(1, "Hello.");
  turn({ user_text: "", spans: { stt_final: 1 } });
  sentence(2, "Yes.");
  turn({ user_text: "Really?", spans: {} });
  assert.equal(root.querySelector('[data-role="answered-in"]'), null);
});

test("the record of a turn belongs to one reply only", () => {
  const { root, sentence, turn } = call();
  sentence(1, "Yes.");
  turn({ user_text: "Really?", spans: { stt_final: 10 } });
  turn({ user_text: "Really?", spans: { stt_final: 10 } });
  assert.equal(root.querySelectorAll('[data-role="answered-in"]').length, 1);
});

test("the end of a call cuts the reply off and drops a guess", () => {
  const { hear, sentence, spoken, transcript, users, words } = call();
  sentence(1, "One two.");
  spoken(1, "One");
  hear("wait");
  transcript.close();
  assert.deepEqual(words("unheard"), ["two."]);
  assert.deepEqual(users(), []);
});

test("a line about the call stands among the bubbles", () => {
  const { root, transcript } = call();
  transcript.note(() => "You hung up after 0:12");
  assert.equal(root.querySelector('[data-role="note"]').textContent, "You hung up after 0:12");
});

test("a message that is not about words changes nothing", () => {
  const { root, say } = call();
  for (const type of ["bot-ready", "bot-llm-started", "metrics"]) say(type);
  say("server-message", { kind: "queue", position: 1 });
  say("server-message");
  assert.equal(root.childElementCount, 0);
});

test("the passages of a reply stand under it and under no other", () => {
  const { say, sentence, spoken, turn, root } = call();
  sentence(1, "Twelve euros.");
  spoken(1, "Twelve euros.");
  say("server-message", { kind: "passages", passages: [{ document: "Fees", heading: "Cards", number: 2 }] });
  turn({ user_text: "How much?", interrupted: false, spans: {} });
  sentence(2, "Goodbye.");
  const [fee, goodbye] = root.querySelectorAll('[data-role="bot-turn"]');
  assert.equal(fee.querySelector('[data-role="passages"] li').textContent, "Fees: Cards");
  assert.equal(goodbye.querySelector('[data-role="passages"]'), null);
});
