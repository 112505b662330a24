/*
 * The console of Pipecat's voice UI kit: a user connects by its button, asks the question, types, and disconnects.
 *
 * `hold(address, recordings)` takes the address of a server. It returns what the console has shown.
 */

import "@pipecat-ai/voice-ui-kit/styles.css";

import { ConsoleTemplate } from "@pipecat-ai/voice-ui-kit";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

import { PageMedia } from "./media.mjs";
import { Microphone, TrackWatch, watchPage } from "./sound.mjs";

const LONGEST_MS = 60_000;
const STEP_MS = 50;
const TYPED = "What is the price?";

async function until(name, find) {
  const untilMs = performance.now() + LONGEST_MS;
  for (;;) {
    const found = find();
    if (found) return found;
    if (performance.now() > untilMs) throw new Error(`${name}: it took too long`);
    await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}

const button = (label) => [...document.querySelectorAll("button")].find((found) => found.innerText.trim() === label && !found.disabled);
const shown = () => document.body.innerText.toLowerCase().replace(/\s+/g, " ");

/** Type into a field whose value React keeps. */
function enter(field, text) {
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

async function use(microphone, question, seen, bot) {
  // A click before the devices are known is lost.
  await until("the devices", () => shown().includes("transport state changed: initialized"));
  button("Connect").click();
  await until("the call", () => button("Disconnect"));
  await until("the greeting", () => bot.answers && !bot.isSpeaking);
  await microphone.say(question);
  seen.question = await until("the question", () => shown().includes("what are your opening hours"));
  seen.answer = await until("the answer", () => shown().includes("we open at nine"));
  const field = await until("the field", () => document.querySelector('[data-slot="input"]:not(:disabled)'));
  enter(field, TYPED);
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  seen.price = await until("the price", () => shown().includes("it costs five euros") && !bot.isSpeaking);
  button("Disconnect").click();
  seen.over = await until("the end", () => Boolean(button("Connect")));
}

async function hold(address, recordings) {
  const microphone = new Microphone();
  const question = await microphone.load(recordings[0]);
  const stalls = watchPage();
  const seen = { errors: [] };
  const bot = { isSpeaking: false, answers: 0 };
  const clients = [];
  const onClient = (client) => {
    clients.push(client);
    client.on("botStartedSpeaking", () => (bot.isSpeaking = true));
    client.on("botStoppedSpeaking", () => ([bot.isSpeaking, bot.answers] = [false, bot.answers + 1]));
    client.on("error", (message) => seen.errors.push(JSON.stringify(message.data)));
  };
  const read = async () => (await clients.at(-1)?.transport.pc?.getStats()) ?? new Map();
  const watch = new TrackWatch(read, () => bot.isSpeaking);
  // Made once: the kit makes another client for other options.
  const options = {
    transportType: "smallwebrtc",
    transportOptions: { mediaManager: new PageMedia() },
    startBotParams: { endpoint: `${address}/start` },
    onClient,
  };
  createRoot(document.querySelector("#root")).render(createElement(ConsoleTemplate, options));
  try {
    await use(microphone, question, seen, bot);
  } catch (error) {
    seen.errors.push(`${error}: ${shown()}`);
  }
  watch.stop();
  return {
    ...seen,
    loudest: watch.loudest,
    pause_ms: watch.longestPauseMs,
    gaps_ms: watch.gaps,
    pieces_ms: [],
    ends_ms: [],
    stalls_ms: stalls,
  };
}

window.hold = hold;
