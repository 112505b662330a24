import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage } from "./support/page.js";
import { Lanes, marksOf } from "../../web/shared/lanes.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const AT_US = 1_700_000_000_000_000;
const S_US = 1_000_000;

let seq = 0;
const report = (statement, body, { at_us = AT_US, late = false } = {}) => ({
  seq: ++seq,
  event_us: at_us,
  key: `k${seq}`,
  kind: "annotation",
  payload: { call_id: "call", statement, late, body },
});

const words = (...texts) => ({
  type: "SpeechPayload",
  text: texts.join(" "),
  words: texts.map((text, at) => ({ text, start_us: AT_US + at * S_US, end_us: AT_US + (at + 1) * S_US })),
});

function lanes() {
  const window = openPage({ file: "session.html", address: `http://localhost:7860/s/${ID}` });
  const fold = document.querySelector('[data-role="lanes"]');
  const shown = new Lanes(fold);
  return {
    take: (...events) => events.forEach((event) => shown.take(event)),
    open() {
      fold.open = true;
      fold.dispatchEvent(new window.Event("toggle"));
    },
    rows: () =>
      Object.fromEntries(
        [...fold.querySelectorAll(".lane")].map((row) => [
          row.dataset.lane,
          [...row.querySelectorAll("li")].map((item) => item.textContent),
        ]),
      ),
    items: () => [...fold.querySelectorAll("li")],
    notice: () => fold.querySelector('[data-role="lanes-notice"]').hidden,
  };
}

test("each specialist has a lane, in order of time", () => {
  const page = lanes();
  page.open();
  assert.equal(page.notice(), false);
  page.take(
    report(3, { type: "VisionPayload", start_us: AT_US, end_us: AT_US + S_US, gesture: "pointing", ref: "the fee" }),
    report(1, words("what", "is", "this")),
    report(2, { type: "ProsodyPayload", start_us: AT_US, end_us: AT_US + S_US, level_offset_db: 8, stress: 0.7 }),
    report(4, { type: "DiarPayload", start_us: AT_US, end_us: AT_US + S_US, speaker_id: "speaker 1", also: null }),
    report(5, { type: "DiarPayload", start_us: AT_US + S_US, end_us: AT_US + 2 * S_US, speaker_id: "speaker 1", also: "speaker 2" }),
  );
  assert.deepEqual(page.rows(), {
    words: ["what", "is", "this"],
    speaker: ["speaker 1", "speaker 1 + speaker 2"],
    voice: ["tense, louder"],
    sight: ["pointing · the fee"],
  });
  assert.equal(page.notice(), true);
  assert.deepEqual(Object.keys(page.rows()), ["words", "speaker", "voice", "sight"]);
});

test("a revision replaces the words before it", () => {
  const page = lanes();
  page.open();
  page.take(report(1, words("what")), report(1, words("what", "now")));
  assert.deepEqual(page.rows(), { words: ["what", "now"] });
});

test("a report stands where it happened, and moves out with time", () => {
  const page = lanes();
  page.open();
  page.take(report(1, words("first")));
  page.take(report(2, { type: "TextPayload", text: "typed" }, { at_us: AT_US + 20 * S_US }));
  const [first, typed] = page.items();
  assert.equal(first.style.insetInlineStart, "0.00%");
  assert.equal(first.style.inlineSize, "5.00%");
  assert.equal(typed.style.insetInlineStart, "99.25%");
  assert.equal(first.parentElement.style.inlineSize, "160rem");
  page.take(report(3, { type: "TextPayload", text: "later" }, { at_us: AT_US + 70 * S_US }));
  assert.deepEqual(page.rows(), { typed: ["typed", "later"] });
});

test("what is folded is drawn when it is opened", () => {
  const page = lanes();
  page.take(report(1, words("hello")), { ...report(9, {}), kind: "state", payload: {} });
  assert.deepEqual(page.rows(), {});
  page.open();
  assert.deepEqual(page.rows(), { words: ["hello"] });
});

test("late reports are marked, and nothing seen is not drawn", () => {
  const page = lanes();
  page.open();
  page.take(
    report(1, words("late"), { late: true }),
    report(2, { type: "VisionPayload", start_us: AT_US, end_us: AT_US + S_US, gesture: null, ref: null }),
    report(3, { type: "AnotherPayload" }),
  );
  assert.deepEqual(page.rows(), { words: ["late"] });
  assert.ok(page.items()[0].classList.contains("late"));
});

test("a plain voice is drawn as such, and words without times as one mark", () => {
  const [voice] = marksOf(AT_US, report(1, { type: "ProsodyPayload", start_us: AT_US, end_us: AT_US + 5 }).payload);
  assert.deepEqual([voice.text, voice.plain], ["as before", true]);
  const [said] = marksOf(AT_US, report(1, { type: "SpeechPayload", text: "no times", words: [] }).payload);
  assert.deepEqual([said.text, said.end_us], ["no times", AT_US]);
});
