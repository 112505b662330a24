import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage, setGlobal } from "./support/page.js";
import { Sight } from "../../web/shared/sight.js";

/** The cameras of a machine; `asked` has the ids that were asked for. */
class Cameras {
  asked = [];

  /** @param {Record<string, string>} failures name of the error by id */
  constructor(failures = {}) {
    this.failures = failures;
  }

  async getUserMedia({ video }) {
    const id = video.deviceId?.exact ?? "";
    this.asked.push(id);
    if (this.failures[id]) throw new DOMException("", this.failures[id]);
    return stream(id);
  }
}

function stream(id) {
  const track = Object.assign(new EventTarget(), { id, isLive: true, stop: () => (track.isLive = false) });
  return { id, getTracks: () => [track], getVideoTracks: () => [track] };
}

function made(failures) {
  const cameras = new Cameras(failures);
  setGlobal("navigator", { mediaDevices: cameras, languages: ["en"] });
  const page = { chosen: "", opened: [], gone: [] };
  const preview = { srcObject: null };
  const sight = new Sight(preview, {
    changed: () => {},
    opened: (source, track) => page.opened.push(track.id),
    gone: (source) => page.gone.push(source),
    camera: () => page.chosen,
  });
  const sent = [];
  const call = { closed: false, useVideo: async (source, shown) => sent.push(shown?.id ?? null) };
  return { cameras, call, page, preview, sent, sight };
}

beforeEach(() => {
  openPage();
});

test("another camera takes the place of the present one, which is ended first", async () => {
  const { call, page, preview, sent, sight } = made();
  await sight.show("camera", call);
  const [before] = preview.srcObject.getTracks();
  page.chosen = "rear";
  await sight.changeCamera(call);
  assert.deepEqual([sent, preview.srcObject.id, before.isLive], [["", "rear"], "rear", false]);
  assert.deepEqual([page.opened, page.gone], [["", "rear"], []]);
});

test("a choice while no camera is shown opens none", async () => {
  const { cameras, call, page, sight } = made();
  page.chosen = "rear";
  await sight.changeCamera(call);
  assert.deepEqual([cameras.asked, sight.shows("camera")], [[], false]);
});

for (const name of ["OverconstrainedError", "NotFoundError"]) {
  test(`the browser's choice is shown in place of an absent camera (${name})`, async () => {
    const { cameras, call, page, sight } = made({ rear: name });
    page.chosen = "rear";
    await sight.show("camera", call);
    assert.deepEqual([cameras.asked, page.opened], [["rear", ""], [""]]);
  });
}

test("a camera that another program uses is reported, and nothing is shown any longer", async () => {
  const { cameras, call, page, preview, sent, sight } = made({ rear: "NotReadableError" });
  await sight.show("camera", call);
  page.chosen = "rear";
  await assert.rejects(sight.changeCamera(call), { message: "Another program is using the camera." });
  assert.deepEqual([cameras.asked, sent, preview.srcObject, sight.shows("camera")], [["", "rear"], ["", null], null, false]);
});

test("a camera that the user denies is reported, nothing is sent, and a later permission shows it", async () => {
  const { cameras, call, page, preview, sent, sight } = made({ "": "NotAllowedError" });
  await assert.rejects(sight.toggle("camera", call), { message: "The camera is blocked for this page." });
  assert.deepEqual([sent, page.opened, preview.srcObject, sight.shows("camera")], [[], [], null, false]);
  cameras.failures = {};
  await sight.toggle("camera", call);
  assert.deepEqual([sent, sight.shows("camera")], [[""], true]);
});

test("a chosen camera that the user denies is not replaced by another one", async () => {
  const { cameras, call, page, sight } = made({ rear: "NotAllowedError" });
  page.chosen = "rear";
  await assert.rejects(sight.show("camera", call), { message: "The camera is blocked for this page." });
  assert.deepEqual([cameras.asked, sight.shows("camera")], [["rear"], false]);
});
