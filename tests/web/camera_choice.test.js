import assert from "node:assert/strict";
import { test } from "node:test";
import { openPage, setGlobal, until } from "./support/page.js";
import { DeviceChoice, choicesOf } from "../../web/shared/camera_choice.js";

const camera = (deviceId, label = "") => ({ kind: "videoinput", deviceId, label });
const FRONT = camera("front", "Front camera");
const BACK = camera("back", "Back camera");

/** A page whose browser has some devices, which change with `plug`. */
async function choosing(devices) {
  openPage({ file: "omni.html" });
  const media = Object.assign(new EventTarget(), { enumerateDevices: async () => devices.now });
  setGlobal("navigator", { languages: ["en"], mediaDevices: media });
  const list = document.querySelector('[data-role="camera-choice"]');
  const box = document.querySelector('[data-role="camera-box"]');
  const chosen = [];
  const choice = new DeviceChoice("videoinput", list, box, (device) => chosen.push(device));
  await choice.refresh();
  const names = () => [...list.options].map((option) => option.textContent);
  const plug = (now) => {
    devices.now = now;
    media.dispatchEvent(new Event("devicechange"));
  };
  return { box, choice, chosen, list, names, plug };
}

const opened = (deviceId) => ({ getTracks: () => [{ getSettings: () => ({ deviceId }) }] });

test("only devices of the kind, which the browser has named, can be chosen", () => {
  const microphone = { kind: "audioinput", deviceId: "m", label: "" };
  assert.deepEqual(choicesOf([camera(""), microphone, BACK], "videoinput"), [BACK]);
});

test("one device is no choice, and a second one that is plugged in makes it one", async () => {
  const { box, names, plug } = await choosing({ now: [FRONT] });
  assert.equal(box.hidden, true);
  plug([FRONT, BACK]);
  await until(() => !box.hidden);
  assert.deepEqual(names(), ["Front camera", "Back camera"]);
  plug([BACK]);
  await until(() => box.hidden);
});

test("a choice is kept for the next visit", async () => {
  const { choice, chosen, list } = await choosing({ now: [FRONT, BACK] });
  assert.equal(choice.device, "");
  list.value = "back";
  list.dispatchEvent(new (list.ownerDocument.defaultView.Event)("change"));
  assert.deepEqual([chosen, choice.device], [["back"], "back"]);
  const again = new DeviceChoice("videoinput", list, list.parentElement, () => {});
  await again.refresh();
  assert.deepEqual([again.device, list.value], ["back", "back"]);
});

test("the device that was opened is shown, and the next one follows it", async () => {
  const { choice, list } = await choosing({ now: [FRONT, BACK] });
  await choice.opened(opened("back"));
  assert.deepEqual([list.value, choice.next], ["back", "front"]);
  await choice.opened(opened("front"));
  assert.equal(choice.next, "back");
});
