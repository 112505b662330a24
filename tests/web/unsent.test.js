import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { Unsent } from "../../web/shared/unsent.js";

test.beforeEach(() => openPage());

test("typed texts are kept in their order, also when the page is loaded again", () => {
  const unsent = new Unsent("s1");
  unsent.keep("b", "first");
  unsent.keep("a", "second");
  assert.deepEqual(new Unsent("s1").all, [["b", "first"], ["a", "second"]]);
});

test("a text that was answered is not kept any longer", () => {
  const unsent = new Unsent("s1");
  unsent.keep("a", "first");
  unsent.keep("b", "second");
  unsent.drop("a");
  assert.deepEqual(unsent.all, [["b", "second"]]);
  assert.deepEqual(new Unsent("s1").all, [["b", "second"]]);
});

test("sessions do not see each other's texts", () => {
  new Unsent("s1").keep("a", "first");
  assert.deepEqual(new Unsent("s2").all, []);
});

test("a deleted session leaves nothing in the storage", () => {
  const unsent = new Unsent("s1");
  unsent.keep("a", "first");
  assert.equal(sessionStorage.length, 1);
  unsent.forget();
  assert.deepEqual(unsent.all, []);
  assert.equal(sessionStorage.length, 0);
});

test("the last answered text removes the entry of the storage", () => {
  const unsent = new Unsent("s1");
  unsent.keep("a", "first");
  unsent.drop("a");
  assert.equal(sessionStorage.length, 0);
});

test("without storage the texts live as long as the page", () => {
  const forbidden = () => {
    throw new DOMException("denied", "SecurityError");
  };
  setGlobal("sessionStorage", { getItem: forbidden, setItem: forbidden, removeItem: forbidden });
  const unsent = new Unsent("s1");
  unsent.keep("a", "first");
  assert.deepEqual(unsent.all, [["a", "first"]]);
  unsent.drop("a");
  assert.deepEqual(unsent.all, []);
});

test("an error that is not the storage's is not hidden", () => {
  setGlobal("sessionStorage", { getItem: () => null, setItem: () => assert.fail("broken") });
  assert.throws(() => new Unsent("s1").keep("a", "first"), /broken/);
});
