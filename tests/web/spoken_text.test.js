import assert from "node:assert/strict";
import { test } from "node:test";
import { SpokenText } from "../../web/shared/spoken_text.js";

/** Return `[heard, rest]` of the newest turn at a time. */
function at(spoken, nowS) {
  const { heard, rest } = spoken.turns(nowS).at(-1);
  return [heard, rest];
}

test("words are heard one after the other, while their piece sounds", () => {
  const spoken = new SpokenText();
  spoken.say("aaaa bbbb", { startS: 10, endS: 11 });
  assert.deepEqual(at(spoken, 9.9), ["", "aaaa bbbb"]);
  assert.deepEqual(at(spoken, 10), ["aaaa", " bbbb"]);
  assert.deepEqual(at(spoken, 10.9), ["aaaa bbbb", ""]);
});

test("text that runs ahead of its sound waits for it", () => {
  const spoken = new SpokenText();
  spoken.say("Hel", null);
  assert.deepEqual(at(spoken, 100), ["", "Hel"]);
  spoken.say("lo.", { startS: 101, endS: 102 });
  assert.deepEqual(at(spoken, 101), ["Hello.", ""]);
});

test("text without any sound is shown when its turn is over", () => {
  const spoken = new SpokenText();
  spoken.say("Only text.", null);
  spoken.endTurn(5);
  assert.deepEqual(at(spoken, 5), ["Only text.", ""]);
  assert.equal(spoken.turns(5)[0].isFinal, true);
});

test("a cut keeps the words that were heard; the others are in no subtitle", () => {
  const spoken = new SpokenText();
  spoken.say("one two", { startS: 0, endS: 1 });
  spoken.say(" three four", { startS: 1, endS: 2 });
  assert.equal(spoken.subtitle(1.1), "one two three");
  spoken.cut(1.1);
  spoken.say(" five", { startS: 2, endS: 3 });
  assert.deepEqual(at(spoken, 50), ["one two three", " four five"]);
  assert.equal(spoken.subtitle(2.5), "one two three");
  assert.equal(spoken.subtitle(6), "");
});

test("a turn that was heard to its end is not cut by the next stop", () => {
  const spoken = new SpokenText();
  spoken.say("done", { startS: 0, endS: 1 });
  spoken.endTurn(0.5);
  assert.equal(spoken.turns(0.9)[0].isFinal, false);
  spoken.cut(3);
  assert.deepEqual(spoken.turns(3), [{ id: 1, heard: "done", rest: "", isCut: false, isFinal: true }]);
});

test("a turn begins after the end of the one before", () => {
  const spoken = new SpokenText();
  spoken.say("first", { startS: 0, endS: 1 });
  spoken.endTurn(0);
  spoken.say("", { startS: 1, endS: 2 }); // a sound without words begins none
  spoken.say("second", { startS: 2, endS: 3 });
  assert.deepEqual(spoken.turns(9).map(({ heard }) => heard), ["first", "second"]);
});

test("subtitles are the last two lines, which do not move while they grow", () => {
  const spoken = new SpokenText();
  const text = Array.from({ length: 30 }, (_, place) => `word${String(place).padStart(2, "0")}`).join(" ");
  spoken.say(text, { startS: 0, endS: 30 });
  const lines = spoken.subtitle(14.5).split("\n");
  assert.deepEqual(lines, ["word06 word07 word08 word09 word10 word11", "word12 word13 word14"]);
  assert.equal(spoken.subtitle(15.5).split("\n")[0], lines[0]);
});

test("scripts without spaces are taken apart", () => {
  const spoken = new SpokenText();
  spoken.say("你好世界", { startS: 0, endS: 4 });
  assert.deepEqual(at(spoken, 1.5), ["你好", "世界"]);
});

test("the turns of a long conversation are limited", () => {
  const spoken = new SpokenText();
  for (let turn = 0; turn < 500; turn += 1) {
    spoken.say(`turn ${turn}`, { startS: turn, endS: turn + 1 });
    spoken.endTurn(turn);
  }
  const shown = spoken.turns(1_000);
  assert.deepEqual([shown.length, shown.at(-1).id], [50, 500]);
});
