import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage } from "./support/page.js";
import { SoundSettings } from "../../web/shared/sound_settings.js";

const DEFAULTS = { gain_db: 0, volume_percent: 100, pushToTalk: false, chime: true, shortcuts: true };

beforeEach(() => {
  openPage();
});

test("what was set is there when the page is opened again", () => {
  const settings = new SoundSettings();
  assert.deepEqual(settings.values, DEFAULTS);
  settings.set({ gain_db: -6 });
  settings.set({ pushToTalk: true });
  assert.deepEqual(new SoundSettings().values, { ...DEFAULTS, gain_db: -6, pushToTalk: true });
});

for (const text of ["no object", "null", "[1]", '{"gain_db": 90, "volume_percent": "loud", "chime": 1, "more": true}', '{"gain_db": null}']) {
  test(`a value that does not fit is the default: ${text}`, () => {
    globalThis.localStorage.setItem("parley.sound", text);
    assert.deepEqual(new SoundSettings().values, DEFAULTS);
  });
}
