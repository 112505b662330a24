// Voice and behaviour of the next call: what is offered, sent and remembered.

import assert from "node:assert/strict";
import { test } from "node:test";

import { openPage, setGlobal } from "./support/page.js";

openPage({ file: "index.html" });
setGlobal("navigator", { languages: ["en"] });
const { Choices } = await import("../../web/shared/choices.js");

const BANK = { id: "bank", name: "Bank", description: "A bank." };
const MODES = {
  cascade: { voices: ["parley", "rms"], presets: [BANK], reference_voices: [], instructions: true },
  duplex: { voices: [], presets: [], reference_voices: [], instructions: false },
};

/** Open the page of a server with these offers, in a mode. */
async function choosing({ offered = { modes: MODES, speaks: false }, mode = { chosen: "cascade", known: Promise.resolve() } } = {}) {
  const page = openPage({ file: "index.html" }).document;
  setGlobal("fetch", async () => ({ ok: offered !== null, json: async () => offered }));
  const choices = new Choices(mode);
  await choices.take();
  const part = (role) => page.querySelector(`[data-role="${role}"]`);
  const list = (role) => part(role).querySelector("select");
  const choose = (role, value) => {
    list(role).value = value;
    list(role).dispatchEvent(new page.defaultView.Event("change"));
  };
  return { choices, part, list, choose, page, mode };
}

test("what is chosen is sent with the next call and kept for its reconnections", async () => {
  const { choices, part, choose, page } = await choosing();
  assert.deepEqual([part("choices").hidden, part("choice-reference").hidden, part("hear").hidden], [false, true, true]);
  assert.deepEqual(await choices.take(), { voice: "parley" });
  choose("choice-voice", "rms");
  choose("choice-preset", "bank");
  assert.equal(part("choice-about").textContent, "A bank.");
  page.querySelector("#choice-instructions").value = " Be brief. ";
  const sent = { voice: "rms", preset: "bank", instructions: "Be brief." };
  assert.deepEqual(await choices.take(), sent);
  choose("choice-voice", "parley");
  assert.deepEqual(choices.taken, sent);
});

test("all but the instructions are remembered in the browser", async () => {
  const { list, choose, choices, page } = await choosing();
  choose("choice-voice", "rms");
  page.querySelector("#choice-instructions").value = "Be brief.";
  await choices.take();
  choices.lock(false);
  assert.equal(list("choice-voice").value, "rms");
  assert.deepEqual(JSON.parse(globalThis.localStorage.getItem("parley.choices")), { voice: "rms" });
});

test("a mode without choices and a server that does not answer show none", async () => {
  const duplex = await choosing({ mode: { chosen: "duplex", known: Promise.resolve() } });
  assert.deepEqual([duplex.part("choices").hidden, await duplex.choices.take()], [true, {}]);
  const away = await choosing({ offered: null });
  assert.deepEqual([away.part("choices").hidden, await away.choices.take()], [true, {}]);
});

test("during a call the choices are locked, with a hint", async () => {
  const { choices, part } = await choosing();
  choices.lock(true);
  assert.ok(part("choice-fields").disabled);
  assert.match(part("choice-hint").textContent, /^This call keeps/);
});
