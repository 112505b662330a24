// Page of a link to a recorded session: its transcript, and its calls to hear and read along. Everything here is read; the link
// says until when.

import { Bubbles } from "./bubbles.js";
import { part, write } from "./element.js";
import { messageOf } from "./guards.js";
import { SessionRecord } from "./record.js";
import { Recordings } from "./recordings.js";
import { ApiError } from "./session_api.js";
import { SharedApi } from "./shared_api.js";

const parts = {
  state: part("state", HTMLElement),
  until: part("until", HTMLElement),
  recordings: part("recordings", HTMLDetailsElement),
  conversation: part("conversation", HTMLElement),
  earlier: part("earlier", HTMLButtonElement),
  hero: part("hero", HTMLElement),
  end: part("end", HTMLElement),
  endTitle: part("end-title", HTMLElement),
  endText: part("end-text", HTMLElement),
};
/** @type {Record<number, string>} */
const TITLES = { 404: "No such link", 410: "This link has ended", 429: "Too many requests" };

async function open() {
  const [, id] = location.pathname.match(/^\/share\/([0-9a-f]{16})\/?$/) ?? [];
  const secret = location.hash.slice(1);
  if (!id || !secret) {
    showEnd(TITLES[404], "The address is incomplete: open the whole link.");
    return;
  }
  const api = new SharedApi(id);
  const { until_us } = await api.open(secret);
  const until = new Date(until_us / 1_000).toLocaleString([], { dateStyle: "long", timeStyle: "short" });
  parts.until.textContent = `This link opens until ${until}.`;
  const bubbles = new Bubbles(parts.conversation);
  const record = new SessionRecord(bubbles);
  record.fill(true);
  for (const event of await api.transcript()) record.take(event);
  record.fill(false);
  parts.earlier.hidden = !record.hasEarlier;
  parts.earlier.addEventListener("click", () => {
    record.showEarlier();
    parts.earlier.hidden = !record.hasEarlier;
  });
  parts.hero.hidden = !bubbles.empty;
  new Recordings(api, parts.recordings);
  document.body.dataset.state = "ready";
  write(parts.state, "Shared with you");
}

/**
 * @param {string} title
 * @param {string} text
 */
function showEnd(title, text) {
  document.body.dataset.state = "gone";
  document.title = `${title} – Parley`;
  write(parts.state, "Gone");
  for (const node of [parts.hero, parts.earlier, parts.conversation, parts.recordings]) node.hidden = true;
  parts.until.textContent = "";
  parts.endTitle.textContent = title;
  parts.endText.textContent = text;
  parts.end.hidden = false;
  parts.endTitle.focus();
}

open().catch((error) => {
  showEnd(error instanceof ApiError ? (TITLES[error.status] ?? "The link could not be opened") : "The link could not be opened", messageOf(error));
});
// Another link in the same tab changes only the fragment, or the fragment of an incomplete one is completed.
window.addEventListener("hashchange", () => location.reload());
