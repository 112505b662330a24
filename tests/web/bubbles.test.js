import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { Bubbles } from "../../web/shared/bubbles.js";

const BUBBLE_PX = 100;
const VIEW_PX = 300;

/** Bubbles in a column of 300 pixels whose bubbles are 100 pixels high: happy-dom has no layout. */
function column(options) {
  const window = openPage();
  let resized = () => {};
  setGlobal(
    "ResizeObserver",
    class {
      constructor(callback) {
        resized = callback;
      }

      observe() {}
    },
  );
  const root = document.createElement("div");
  let top = 0;
  Object.defineProperties(root, {
    clientHeight: { get: () => VIEW_PX },
    scrollHeight: { get: () => Math.max(VIEW_PX, root.childElementCount * BUBBLE_PX) },
    scrollTop: {
      get: () => top,
      set: (value) => {
        top = Math.max(0, Math.min(value, root.scrollHeight - VIEW_PX));
      },
    },
  });
  const bubbles = new Bubbles(root, options);
  resized();
  return {
    bubbles,
    root,
    add: (text) => bubbles.put(bubbles.makeNote(() => text)),
    scroll(to) {
      root.scrollTop = to;
      root.dispatchEvent(new window.Event("scroll"));
    },
    texts: () => [...root.children].map((child) => child.textContent),
  };
}

test("a bubble names its speaker to screen readers", () => {
  const { bubbles } = column();
  for (const [who, name] of [["user", "You: "], ["bot", "Parley: "]]) {
    const { item, bubble, under } = bubbles.make(who);
    assert.equal(item.dataset.role, `${who}-turn`);
    assert.equal(item.querySelector(".unseen").textContent, name);
    assert.ok(item.contains(bubble) && item.contains(under));
  }
});

test("bubbles come at the end, or before another one", () => {
  const { bubbles, add, root, texts } = column();
  assert.ok(bubbles.empty);
  add("first");
  add("third");
  bubbles.put(bubbles.makeNote(() => "second"), root.lastElementChild);
  assert.deepEqual(texts(), ["first", "second", "third"]);
  assert.ok(!bubbles.empty);
});

test("only the last bubbles are kept", () => {
  const { add, texts } = column({ keep: 3 });
  for (const text of ["1", "2", "3", "4", "5"]) add(text);
  assert.deepEqual(texts(), ["3", "4", "5"]);
});

test("the end stays in view while the user reads the end", () => {
  const { add, bubbles, root } = column();
  for (let count = 0; count < 6; count += 1) add("text");
  assert.ok(bubbles.pinned);
  assert.equal(root.scrollTop, 300);
});

test("a user who has scrolled up is left where they read, until the end is shown on purpose", () => {
  const { add, bubbles, root, scroll } = column();
  for (let count = 0; count < 6; count += 1) add("text");
  scroll(100);
  assert.ok(!bubbles.pinned);
  add("new");
  assert.equal(root.scrollTop, 100);
  bubbles.pin();
  assert.equal(root.scrollTop, 400);
  add("newer");
  assert.equal(root.scrollTop, 500);
});

test("a user who scrolls back to the end follows it again", () => {
  const { add, bubbles, root, scroll } = column();
  for (let count = 0; count < 6; count += 1) add("text");
  scroll(0);
  scroll(260);
  assert.ok(bubbles.pinned);
  add("new");
  assert.equal(root.scrollTop, 400);
});

test("earlier bubbles do not move what the user reads", () => {
  const { add, bubbles, root, scroll, texts } = column();
  for (let count = 0; count < 6; count += 1) add("text");
  scroll(100);
  bubbles.prepend([bubbles.makeNote(() => "a"), bubbles.makeNote(() => "b")]);
  assert.equal(root.scrollTop, 300);
  assert.deepEqual(texts().slice(0, 3), ["a", "b", "text"]);
});

test("earlier bubbles are not read out, and later ones are", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { bubbles, root } = column();
  bubbles.prepend([bubbles.makeNote(() => "a")]);
  assert.equal(root.getAttribute("aria-live"), "off");
  t.mock.timers.tick(500);
  assert.equal(root.getAttribute("aria-live"), "polite");
});

test("a conversation that is put in as a whole is scrolled once", () => {
  const { add, bubbles, root } = column();
  bubbles.fill(true);
  assert.equal(root.getAttribute("aria-busy"), "true");
  for (let count = 0; count < 6; count += 1) add("text");
  assert.equal(root.scrollTop, 0);
  bubbles.fill(false);
  assert.equal(root.getAttribute("aria-busy"), "false");
  assert.equal(root.scrollTop, 300);
});
