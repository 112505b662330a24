import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { SessionApi } from "../../web/shared/session_api.js";
import { Timeline } from "../../web/shared/timeline.js";

const ID = "0123abcd-0123-4567-89ab-0123456789ab";
const AT_US = 1_700_000_000_000_000;

const event = (seq, offsetUs = seq) => ({ seq, event_us: AT_US + offsetUs, kind: "state", key: `k${seq}`, payload: { seq } });

/** The timeline of the session page; `answer(after, response)` is the server. */
async function timeline(t, answer) {
  const window = openPage({ file: "session.html", address: `http://localhost:7860/s/${ID}` });
  const asked = [];
  const { stop } = await serve(t, (request, response) => {
    const { searchParams } = new URL(request.url, "http://localhost");
    asked.push(searchParams.get("after"));
    assert.equal(searchParams.get("limit"), "100");
    answer(searchParams.get("after"), response);
  });
  const fold = document.querySelector('[data-role="timeline"]');
  const more = fold.querySelector('[data-role="more-events"]');
  const notice = fold.querySelector('[data-role="events-notice"]');
  const shown = new Timeline(new SessionApi(ID), fold);
  return {
    asked,
    more,
    notice,
    open() {
      fold.open = true;
      fold.dispatchEvent(new window.Event("toggle"));
    },
    rows: () => [...fold.querySelectorAll('[data-role="event"]')].map(({ dataset }) => Number(dataset.seq)),
    stop,
    timeline: shown,
    fold,
  };
}

test("nothing is read before the timeline is opened", async (t) => {
  const { asked, open, rows } = await timeline(t, (after, response) => answerJson(response, { events: [event(1)], after: null }));
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.deepEqual(asked, []);
  open();
  await until(() => rows().length === 1);
  assert.deepEqual(asked, [null]);
});

test("pages are read one at a time, each after the last event that is shown", async (t) => {
  const { asked, more, open, rows } = await timeline(t, (after, response) => {
    if (after === null) answerJson(response, { events: [event(1), event(2)], after: `${AT_US + 2}.2` });
    else answerJson(response, { events: [event(3)], after: null });
  });
  open();
  await until(() => !more.hidden);
  assert.deepEqual(rows(), [1, 2]);
  more.click();
  await until(() => more.hidden);
  assert.deepEqual(rows(), [1, 2, 3]);
  assert.deepEqual(asked, [null, `${AT_US + 2}.2`]);
});

test("a new event joins where its time puts it, and only once", async (t) => {
  const { open, rows, more, timeline: shown } = await timeline(t, (after, response) =>
    answerJson(response, { events: [event(1, 10), event(2, 30)], after: null }),
  );
  open();
  await until(() => rows().length === 2 && more.hidden);
  await new Promise((resolve) => setTimeout(resolve, 5));
  shown.take(event(3, 20));
  shown.take(event(4, 40));
  shown.take(event(4, 40));
  assert.deepEqual(rows(), [1, 3, 2, 4]);
});

test("events of one moment are in the order of their numbers", async (t) => {
  const { open, rows, timeline: shown } = await timeline(t, (after, response) =>
    answerJson(response, { events: [event(2, 10)], after: null }),
  );
  open();
  await until(() => rows().length === 1);
  await new Promise((resolve) => setTimeout(resolve, 5));
  shown.take(event(3, 10));
  shown.take(event(1, 10));
  assert.deepEqual(rows(), [1, 2, 3]);
});

test("a new event beyond the pages that are shown waits for its page", async (t) => {
  const { more, open, rows, timeline: shown } = await timeline(t, (after, response) =>
    answerJson(response, { events: [event(1, 10), event(2, 30)], after: "x" }),
  );
  open();
  await until(() => !more.hidden);
  shown.take(event(9, 90));
  assert.deepEqual(rows(), [1, 2]);
  shown.take(event(8, 20));
  assert.deepEqual(rows(), [1, 8, 2]);
});

test("an event that is committed while a page is read is not lost", async (t) => {
  const answers = [];
  const { open, rows, timeline: shown } = await timeline(t, (after, response) => answers.push(response));
  open();
  await until(() => answers.length);
  shown.take(event(2));
  assert.deepEqual(rows(), []);
  answerJson(answers[0], { events: [event(1)], after: null });
  await until(() => rows().length === 2);
  assert.deepEqual(rows(), [1, 2]);
});

test("a failure is shown, and the timeline can be opened again", async (t) => {
  let status = 503;
  const { notice, open, rows } = await timeline(t, (after, response) => {
    if (status === 200) answerJson(response, { events: [event(1)], after: null });
    else answerJson(response, { error: "the store is away" }, status);
  });
  open();
  await until(() => !notice.hidden);
  assert.equal(notice.textContent, "The server reports: the store is away.");
  status = 200;
  await new Promise((resolve) => setTimeout(resolve, 5));
  open();
  await until(() => rows().length === 1);
  assert.ok(notice.hidden);
});

test("a session without events says so", async (t) => {
  const { notice, open } = await timeline(t, (after, response) => answerJson(response, { events: [], after: null }));
  open();
  await until(() => !notice.hidden);
  assert.equal(notice.textContent, "Nothing has happened yet.");
});

test("a row holds every field of its event", async (t) => {
  const { fold, open, rows } = await timeline(t, (after, response) =>
    answerJson(response, { events: [event(7)], after: null }),
  );
  open();
  await until(() => rows().length === 1);
  const row = fold.querySelector('[data-role="event"]');
  assert.equal(row.querySelector(".seq").textContent, "#7");
  assert.equal(row.querySelector("time").dateTime, new Date((AT_US + 7) / 1_000).toISOString());
  assert.deepEqual(JSON.parse(row.querySelector("pre").textContent), event(7));
});
