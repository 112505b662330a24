// Page of a link to a recorded session: its transcript, and its calls to hear and read along. Everything here is read; the link
// says until when.

import { Bubbles } from "./bubbles.js";
import { part, write } from "./element.js";
import { messageOf } from "./guards.js";
import { chooseLanguage, dateAndTime, t, translate } from "./language.js";
import { SessionRecord } from "./record.js";
import { Recordings } from "./recordings.js";
import { ApiError } from "./session_api.js";
import { SharedApi } from "./shared_api.js";

/** @import { Key } from "./language.js" */

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
/** @type {Record<number, Key>} */
const TITLES = { 404: "no_link", 410: "link_over", 429: "too_many_requests" };

async function open() {
  const [, id] = location.pathname.match(/^\/share\/([0-9a-f]{16})\/?$/) ?? [];
  const secret = location.hash.slice(1);
  if (!id || !secret) {
    showEnd("no_link", t("link_incomplete"));
    return;
  }
  const api = new SharedApi(id);
  const { until_us } = await api.open(secret);
  const recordings = new Recordings(api, parts.recordings);
  const show = () => {
    parts.until.textContent = t("link_opens_until", { until: dateAndTime(until_us, "long") });
    write(parts.state, t("shared_with_you"));
    recordings.show();
  };
  chooseLanguage(part("language", HTMLSelectElement), show);
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
  document.body.dataset.state = "ready";
  show();
}

/**
 * @param {Key} key of the title
 * @param {string} text
 */
function showEnd(key, text) {
  const title = t(key);
  chooseLanguage(part("language", HTMLSelectElement), () => location.reload());
  document.body.dataset.state = "gone";
  document.title = `${title} – Parley`;
  write(parts.state, t("page_gone"));
  for (const node of [parts.hero, parts.earlier, parts.conversation, parts.recordings]) node.hidden = true;
  parts.until.textContent = "";
  parts.endTitle.textContent = title;
  parts.endText.textContent = text;
  parts.end.hidden = false;
  parts.endTitle.focus();
}

translate(document);
open().catch((error) => {
  showEnd((error instanceof ApiError && TITLES[error.status]) || "link_failed", messageOf(error));
});
// Another link in the same tab changes only the fragment, or the fragment of an incomplete one is completed.
window.addEventListener("hashchange", () => location.reload());
