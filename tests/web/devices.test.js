import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openPage } from "./support/page.js";
import { Devices, choicesOf } from "../../web/shared/devices.js";

const HEADSET = { kind: "audioinput", deviceId: "a", label: "Headset" };
const BUILT_IN = { kind: "audioinput", deviceId: "b", label: "Built-in" };
const ALIAS = { kind: "audioinput", deviceId: "default", label: "Default - Headset" };
const SPEAKER = { kind: "audiooutput", deviceId: "a", label: "Headset" };
const UNNAMED = { kind: "audioinput", deviceId: "", label: "" };

/** The devices of a machine, as a browser lists them. */
class Machine extends EventTarget {
  constructor(...devices) {
    super();
    this.devices = devices;
  }

  async enumerateDevices() {
    return this.devices;
  }
}

async function devicesOf(machine) {
  const devices = new Devices(() => {}, machine);
  await devices.refresh();
  return devices;
}

beforeEach(() => {
  openPage();
});

test("a list has the devices of its kind, each once and with its name", () => {
  const found = [ALIAS, HEADSET, SPEAKER, BUILT_IN];
  assert.deepEqual(choicesOf(found, "microphone").map(({ label }) => label), ["Headset", "Built-in"]);
  assert.deepEqual(choicesOf(found, "loudspeaker"), [{ id: "a", label: "Headset" }]);
  assert.deepEqual(choicesOf(found, "camera"), []);
});

test("before a permission there is nothing to choose, and nothing is missing", async () => {
  const before = await devicesOf(new Machine(HEADSET));
  before.choose("microphone", "a");
  const devices = await devicesOf(new Machine(UNNAMED));
  assert.deepEqual(devices.choices("microphone"), []);
  assert.ok(!devices.misses("microphone"));
});

test("a choice is kept for each kind, also while its device is absent", async () => {
  const machine = new Machine(HEADSET, BUILT_IN, SPEAKER);
  const devices = await devicesOf(machine);
  assert.deepEqual(devices.chosen("microphone"), { id: "", label: "" });
  devices.choose("microphone", "b");
  devices.choose("loudspeaker", "a");
  machine.devices = [HEADSET];
  const later = await devicesOf(machine);
  assert.deepEqual(later.chosen("microphone"), { id: "b", label: "Built-in" });
  assert.deepEqual(later.chosen("loudspeaker"), { id: "a", label: "Headset" });
  assert.ok(later.misses("microphone"));
  later.choose("microphone", "");
  assert.ok(!later.misses("microphone"));
});

test("a device that is plugged in is listed", async () => {
  const machine = new Machine(HEADSET);
  const devices = await new Promise((resolve) => {
    const made = new Devices(() => resolve(made), machine);
    machine.devices = [HEADSET, BUILT_IN];
    machine.dispatchEvent(new Event("devicechange"));
  });
  assert.equal(devices.choices("microphone").length, 2);
});

test("another device than the chosen one is named", async () => {
  const devices = await devicesOf(new Machine(HEADSET, BUILT_IN));
  const track = { label: "Built-in", getSettings: () => ({ deviceId: "b" }) };
  assert.equal(devices.otherThanChosen("microphone", track), "");
  devices.choose("microphone", "a");
  assert.match(devices.otherThanChosen("microphone", track), /Headset.*Built-in/);
  devices.choose("microphone", "b");
  assert.equal(devices.otherThanChosen("microphone", track), "");
});

test("without https, and with a store that something else has written, the choice is the browser's", async () => {
  globalThis.localStorage.setItem("parley.devices", '{"microphone": {"id": 7}, "camera": 1');
  assert.deepEqual(new Devices(() => {}, null).chosen("microphone"), { id: "", label: "" });
  globalThis.localStorage.setItem("parley.devices", '{"microphone": {"id": 7, "label": "x"}}');
  const devices = await devicesOf(new Machine(HEADSET));
  assert.deepEqual(devices.chosen("microphone"), { id: "", label: "" });
});
