import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, until } from "./support/page.js";
import { answerJson, serve } from "./support/server.js";
import { Presets, promptOf } from "../../web/shared/presets.js";

const VOICE = { name: "clerk.wav", duration: 2 };
const PRESETS = {
  audio_duplex: [
    { id: "bank", name: "Bank helper", description: "By telephone.", system_prompt: "You are a bank.", ref_audio: VOICE },
    { id: "plain", name: "Plain", description: "", system_prompt: "Be plain." },
  ],
  omni: [{ id: "bank", name: "Bank helper", description: "With a camera.", system_prompt: "You see forms." }],
};
const ANSWERS = {
  "/api/presets": PRESETS,
  "/api/presets/audio_duplex/bank/audio": { ref_audio: { ...VOICE, data: "AAAA" } },
  "/api/assets/ref_audio": { total: 1, ref_audios: [{ id: "uploaded", name: "Ann", duration_ms: 4_000 }], default: "standard.wav" },
  "/api/default_ref_audio": { name: "standard.wav", duration: 3, base64: "BBBB" },
};

/** A page of a deployment that gives some answers; other paths are refused with `status`. */
async function offered(t, answers, status = 404) {
  const { document } = openPage({ file: "omni.html" });
  await serve(t, (request, response) => {
    const answer = answers[request.url];
    answerJson(response, answer ?? { error: "no" }, answer ? 200 : status);
  });
  const field = (role) => document.querySelector(`[data-role="${role}"]`);
  const failures = [];
  const presets = new Presets(field("prompt"), (text) => failures.push(text));
  await presets.load();
  const choose = (role, value) => {
    field(role).value = value;
    field(role).dispatchEvent(new document.defaultView.Event("change"));
  };
  return { choose, failures, field, presets };
}

test("where the deployment has neither presets nor voices nothing is shown", async (t) => {
  const { field } = await offered(t, { "/api/presets": {}, "/api/assets/ref_audio": { total: 0, ref_audios: [] } });
  assert.deepEqual([field("preset-box").hidden, field("voice-box").hidden], [true, true]);
});

test("a preset fills in the instructions and its reference voice", async (t) => {
  const { choose, field, presets } = await offered(t, ANSWERS);
  choose("preset", "bank");
  assert.equal(field("prompt").value, "You are a bank.");
  assert.equal(field("preset-about").textContent, "By telephone.");
  assert.equal(field("voice").selectedOptions[0].textContent, "clerk.wav (of the preset)");
  await until(() => presets.voice);
  assert.equal(presets.voice, "AAAA");
  choose("preset", "plain");
  assert.deepEqual([field("prompt").value, field("voice").value, presets.voice], ["Be plain.", "", ""]);
});

test("the camera changes to the preset of its mode, unless the instructions were changed by hand", async (t) => {
  const { choose, field, presets } = await offered(t, ANSWERS);
  choose("preset", "bank");
  presets.useCamera(true);
  assert.equal(field("prompt").value, "You see forms.");
  presets.lock(true);
  presets.useCamera(false);
  assert.equal(field("prompt").value, "You see forms.");
  presets.useCamera(true);
  presets.lock(false);
  field("prompt").value = "Mine.";
  presets.useCamera(false);
  assert.deepEqual([field("prompt").value, field("preset").value], ["Mine.", "bank"]);
});

test("the server's reference voice is read when it is chosen", async (t) => {
  const { choose, field, presets } = await offered(t, ANSWERS);
  assert.equal(field("voice").options[1].textContent, "standard.wav (the server's reference voice)");
  choose("voice", "default");
  await until(() => presets.voice);
  assert.equal(presets.voice, "BBBB");
});

test("a voice that only operators may load is refused with the next step", async (t) => {
  const { choose, failures, field, presets } = await offered(t, ANSWERS, 401);
  choose("voice", "uploaded");
  await until(() => failures.some(Boolean));
  assert.match(failures.at(-1), /Only operators may use that voice\. Log in at \/admin/);
  assert.deepEqual([field("voice").value, presets.voice], ["", ""]);
});

test("the texts of a preset's contents are its instructions", () => {
  const content = [{ type: "text", text: "One." }, { type: "audio" }, { type: "text", text: "Two." }];
  assert.equal(promptOf({ id: "a", name: "a", system_content: content }), "One.\nTwo.");
});
