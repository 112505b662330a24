import assert from "node:assert/strict";
import { test } from "node:test";
import { ForcedListening } from "../../web/shared/forced_listening.js";

const SPEAKS = { is_listen: false, interrupted: false, end_of_turn: false };
const LISTENS = { ...SPEAKS, is_listen: true };

test("nothing is ordered and everything is heard without a press", () => {
  const forced = new ForcedListening();
  assert.deepEqual([forced.takeOrder(), forced.admits(SPEAKS)], [false, true]);
});

test("every chunk carries the order while the button is held", () => {
  const forced = new ForcedListening();
  forced.press();
  assert.deepEqual([forced.takeOrder(), forced.takeOrder(), forced.admits(LISTENS)], [true, true, false]);
  forced.release();
  assert.equal(forced.takeOrder(), false);
});

test("a press between two chunks is sent with the second one, and the rest of that reply stays silent", () => {
  const forced = new ForcedListening();
  forced.press();
  forced.release();
  assert.equal(forced.admits(SPEAKS), false);
  assert.equal(forced.admits(LISTENS), false); // answers a chunk of before
  assert.deepEqual([forced.takeOrder(), forced.takeOrder()], [true, false]);
  assert.equal(forced.admits(SPEAKS), false);
  assert.equal(forced.admits(LISTENS), false); // the bot listens: from here on it is heard
  assert.equal(forced.admits(SPEAKS), true);
});

test("the end of the silenced turn is not heard, and what comes with an interruption is", () => {
  for (const [last, isHeard] of [[{ ...SPEAKS, end_of_turn: true }, false], [{ ...SPEAKS, interrupted: true }, true]]) {
    const forced = new ForcedListening();
    forced.press();
    forced.takeOrder();
    forced.release();
    assert.deepEqual([forced.admits(last), forced.admits(SPEAKS)], [isHeard, true]);
  }
});
