import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { DUPLEX_SPANS, LatencyHistory, duplexSpans, median } from "../../web/shared/latency_history.js";

/** The part of the call page that shows the latency, and the records that it takes. */
function shown() {
  const window = openPage({ file: "index.html" });
  setGlobal("navigator", window.navigator);
  const root = document.querySelector('[data-role="latency"]');
  const history = new LatencyHistory(root);
  const part = (role) => root.querySelector(`[data-role="${role}"]`);
  return {
    root,
    history,
    part,
    answer: (spans, asked = "How much?") =>
      history.take({ type: "server-message", data: { kind: "turn", user_text: asked, spans } }),
    heights: () => [...part("latency-bars").children].map((bar) => Number(bar.style.getPropertyValue("--height"))),
  };
}

test("the median of an even number is the middle of the two middle ones", () => {
  assert.equal(median([900]), 900);
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([400, 100, 300, 200]), 250);
});

test("a page without an answer shows no latency", () => {
  const { root, answer, history } = shown();
  history.show();
  answer({ llm_first_token: 300 }, "");
  answer({});
  assert.equal(root.hidden, true);
});

test("the last answer is shown by stage in the order in which its time passes", () => {
  const { root, part, answer } = shown();
  answer({ playout_queue: 100, stt_final: 300 });
  assert.equal(root.hidden, false);
  assert.equal(part("latency-summary").textContent, "Last answer 400 ms, median 400 ms of 1");
  const pieces = [...part("latency-stages").children];
  assert.deepEqual(pieces.map((piece) => piece.dataset.stage), ["stt_final", "playout_queue"]);
  assert.deepEqual(pieces.map((piece) => piece.style.getPropertyValue("--share")), ["0.75", "0.25"]);
  const legend = [...part("latency-legend").children].map(({ textContent }) => textContent);
  assert.deepEqual(legend, ["last words recognised", "300 ms", "sent to you", "100 ms"]);
});

test("the newest twenty answers are bars, the longest of them the highest", () => {
  const { part, answer, heights } = shown();
  answer({ llm_first_token: 100_000 });
  for (let ms = 1; ms <= 20; ms += 1) answer({ llm_first_token: ms * 100 });
  assert.equal(heights().length, 20);
  assert.deepEqual([heights()[0], heights()[19]], [0.05, 1]);
  assert.equal(part("latency-summary").textContent, "Last answer 2000 ms, median 1050 ms of 20");
  assert.equal(part("latency-bars").getAttribute("aria-label"), "Latency of the last 20 answers, median 1050 ms");
  assert.equal(part("latency-bars").style.getPropertyValue("--median"), "0.525");
});

test("an answer of full duplex is split into the model, the voice and the rest, which are its whole", () => {
  assert.deepEqual(duplexSpans(900, { cost_llm_ms: 200, cost_all_ms: 350 }), { duplex_model: 200, duplex_voice: 150, duplex_rest: 550 });
  assert.deepEqual(duplexSpans(900, { cost_llm_ms: 0, cost_all_ms: 0 }), { duplex_model: 0, duplex_voice: 0, duplex_rest: 900 });
  // Heard before the unit was over.
  assert.deepEqual(duplexSpans(300, { cost_llm_ms: 400, cost_all_ms: 500 }), { duplex_model: 300, duplex_voice: 0, duplex_rest: 0 });
});

test("the page of full duplex shows these parts", () => {
  const window = openPage({ file: "omni.html" });
  setGlobal("navigator", window.navigator);
  const root = document.querySelector('[data-role="latency"]');
  new LatencyHistory(root, DUPLEX_SPANS).add(duplexSpans(900, { cost_llm_ms: 200, cost_all_ms: 350 }));
  assert.match(root.querySelector('[data-role="latency-summary"]').textContent, /^Last answer 900 ms/);
  const stages = [...root.querySelectorAll('[data-role="latency-stages"] i')].map((piece) => piece.dataset.stage);
  assert.deepEqual(stages, ["duplex_model", "duplex_voice", "duplex_rest"]);
});
