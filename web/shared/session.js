// Page of one session: everything so far on any transport, and typed turns. Decides what is being answered and which notice the
// user sees; the server is in session_api.js and follower.js, the bubbles in record.js.

import { Attachments } from "./attachments.js";
import { Bubbles } from "./bubbles.js";
import { CallLanes } from "./call_lanes.js";
import { Comments } from "./comments.js";
import { part, showNotice, write } from "./element.js";
import { Follower } from "./follower.js";
import { openFragment } from "./fragment.js";
import { Lanes } from "./lanes.js";
import { chooseLanguage, t, translate } from "./language.js";
import { LatencyBars } from "./latency_bars.js";
import { Recordings } from "./recordings.js";
import { DECLINE, SessionRecord } from "./record.js";
import { Replays } from "./replays.js";
import { ApiError, SessionApi, newKey, requestJson } from "./session_api.js";
import { SessionTags } from "./session_tags.js";
import { Shares } from "./shares.js";
import { Timeline } from "./timeline.js";
import { Unsent } from "./unsent.js";

/** @import { Attached, MediumName, SessionEvent, TierName } from "../types/server.js" */
/** @import { Key } from "./language.js" */

/** @type {Record<string, Key>} */
const LABELS = {
  loading: "page_loading",
  ready: "state_ready",
  answering: "page_answering",
  away: "page_away",
  locked: "page_locked",
  gone: "page_gone",
};
/** @type {Partial<Record<TierName, Key>>} */
const SPEAKERS = { waiting: "waits_for_colleague", human: "talks_with_colleague" };
/** @type {Partial<Record<MediumName, Key>>} */
const STEPS = { voice: "suggest_voice", video: "suggest_video", screen: "suggest_screen" };

const parts = {
  state: part("state", HTMLElement),
  hero: part("hero", HTMLElement),
  notice: part("notice", HTMLElement),
  speaker: part("speaker", HTMLElement),
  step: part("step", HTMLElement),
  stepText: part("step-text", HTMLElement),
  stepCall: part("step-call", HTMLAnchorElement),
  stepDecline: part("step-decline", HTMLButtonElement),
  typing: part("typing", HTMLFormElement),
  typed: part("typed", HTMLTextAreaElement),
  attached: part("attached", HTMLElement),
  attach: part("attach", HTMLElement),
  files: part("files", HTMLInputElement),
  send: part("send", HTMLButtonElement),
  stop: part("stop", HTMLButtonElement),
  call: part("call", HTMLAnchorElement),
  download: part("export", HTMLAnchorElement),
  remove: part("delete", HTMLButtonElement),
  confirm: part("confirm", HTMLDialogElement),
  paths: part("paths", HTMLElement),
  timeline: part("timeline", HTMLDetailsElement),
  lanes: part("lanes", HTMLDetailsElement),
  recordings: part("recordings", HTMLDetailsElement),
  tags: part("tags", HTMLElement),
  callLanes: part("call-lanes", HTMLElement),
  callFolds: part("call-folds", HTMLElement),
  earlier: part("earlier", HTMLButtonElement),
  share: part("share-open", HTMLButtonElement),
  shareDialog: part("share", HTMLDialogElement),
  conversation: part("conversation", HTMLElement),
  dock: part("dock", HTMLElement),
  end: part("end", HTMLElement),
  endTitle: part("end-title", HTMLElement),
  endText: part("end-text", HTMLElement),
  endLink: part("end-link", HTMLAnchorElement),
  id: part("session-id", HTMLElement),
};

class SessionPage {
  #api;
  #bubbles = new Bubbles(parts.conversation);
  #record = new SessionRecord(this.#bubbles);
  #timeline;
  #lanes = new Lanes(parts.lanes);
  #callLanes;
  #recordings;
  #tags;
  #attachments = new Attachments(parts.attached, (problem) => {
    if (problem) [this.#message, this.#isBack] = [problem, false];
    this.#show();
  });
  #unsent;
  #follower;
  #loading = true;
  #away = false;
  /** @type {AbortController | null} ends the answer that is streaming */
  #answering = null;
  #message = "";
  /** The server answers again, and something was not sent. */
  #isBack = false;
  /** @type {TierName} */
  #tier = "agent";
  /** @type {Key | undefined} what a step offers that is open */
  #step;
  #tierSeq = 0;

  /** @param {SessionApi} api */
  constructor(api) {
    this.#api = api;
    chooseLanguage(part("language", HTMLSelectElement), () => {
      this.#recordings.show();
      for (const each of [comments, this.#callLanes, bars, replays, this.#tags, this.#lanes, this.#timeline]) each.draw();
      this.#show();
    });
    this.#timeline = new Timeline(api, parts.timeline);
    /** @type {(at_ms: number) => void} */
    const seek = (at_ms) => this.#recordings.seek(at_ms);
    const comments = new Comments(api, parts.recordings, seek);
    this.#callLanes = new CallLanes(parts.callLanes, seek);
    const bars = new LatencyBars(parts.callFolds, seek);
    const replays = new Replays(api, parts.callFolds, seek);
    const shown = [comments, this.#callLanes, bars, replays];
    this.#recordings = new Recordings(api, parts.recordings, {
      shown: (call) => shown.forEach((each) => each.show(call)),
      moved: (at_ms) => [comments, this.#callLanes].forEach((each) => each.move(at_ms)),
    });
    new Shares(api, parts.share, parts.shareDialog);
    this.#tags = new SessionTags(api, parts.tags);
    this.#unsent = new Unsent(api.id);
    this.#follower = new Follower(api, {
      past: (events) => this.#onPast(events),
      event: (event) => this.#onEvent(event),
      up: () => this.#onUp(),
      away: () => this.#onAway(),
      gone: () => this.#onGone(),
    });
    parts.id.textContent = api.id.slice(0, 8);
    parts.id.title = api.id;
    parts.call.href = parts.stepCall.href = `/?session=${api.id}`;
    parts.stepDecline.addEventListener("click", () => this.#say(newKey(), DECLINE));
    parts.download.href = api.exportPath;
    parts.download.download = `${api.id}.jsonl`;
    parts.typing.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    parts.typed.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    parts.typed.addEventListener("input", () => this.#show());
    parts.files.addEventListener("change", () => {
      this.#attachments.add([...(parts.files.files ?? [])]);
      parts.files.value = "";
    });
    parts.typed.addEventListener("paste", (event) => this.#attach(event, event.clipboardData));
    parts.dock.addEventListener("dragover", (event) => event.preventDefault());
    parts.dock.addEventListener("drop", (event) => this.#attach(event, event.dataTransfer));
    this.#offerPictures();
    parts.stop.addEventListener("click", () => this.#answering?.abort());
    parts.remove.addEventListener("click", () => {
      parts.confirm.returnValue = ""; // Escape keeps the previous answer
      parts.confirm.showModal();
    });
    parts.confirm.addEventListener("close", () => parts.confirm.returnValue === "delete" && this.#delete());
    parts.earlier.addEventListener("click", () => {
      this.#record.showEarlier();
      this.#show();
      if (parts.earlier.hidden) parts.conversation.focus();
    });
    this.#record.fill(true);
    this.#show();
    this.#follower.start();
    openFragment(parts);
  }

  #onUp() {
    if (this.#away && this.#message) this.#isBack = true;
    this.#away = false;
    this.#show();
  }

  #onAway() {
    this.#away = true;
    this.#show();
  }

  /** @param {SessionEvent} event */
  #onEvent(event) {
    this.#record.take(event);
    this.#noteTier(event);
    this.#timeline.take(event);
    this.#lanes.take(event);
    this.#tags.take(event);
    this.#callLanes.take(event);
    this.#recordings.take(event);
    this.#show();
  }

  /**
   * Show everything so far, then what was typed in this tab and never answered.
   *
   * @param {SessionEvent[]} events
   */
  #onPast(events) {
    for (const event of events) {
      this.#record.take(event);
      this.#lanes.take(event);
      this.#tags.take(event);
      this.#callLanes.take(event);
      this.#noteTier(event);
    }
    for (const [key, text] of this.#unsent.all) {
      if (this.#record.isAnswered(key)) {
        this.#unsent.drop(key);
      } else {
        this.#record.ask(key, text);
        this.#offerAgain(key, text, t("not_answered"));
      }
    }
    this.#loading = false;
    this.#record.fill(false);
  }

  /** @param {SessionEvent} event */
  #noteTier(event) {
    if (event.kind !== "tier" || event.seq < this.#tierSeq) return;
    const { tier, to } = event.payload;
    this.#tier = tier;
    this.#step = to && (tier === "step_offered" || tier === "stepping") ? STEPS[to] : undefined;
    this.#tierSeq = event.seq;
  }

  async #offerPictures() {
    const status = await requestJson("GET", "/status").catch(() => ({}));
    parts.attach.hidden = !status.reads_pictures;
  }

  /**
   * @param {Event} event
   * @param {DataTransfer | null} given
   */
  #attach(event, given) {
    const files = [...(given?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    if (!parts.attach.hidden) this.#attachments.add(files);
  }

  #submit() {
    const text = parts.typed.value.trim();
    if ((!text && this.#attachments.empty) || this.#loading || this.#answering) return;
    parts.typed.value = "";
    parts.typed.focus();
    this.#say(newKey(), text, this.#attachments.take());
  }

  /**
   * @param {string} key
   * @param {string} text
   * @param {Attached[]} [pictures]
   */
  async #say(key, text, pictures = []) {
    if (this.#answering) return;
    const stop = new AbortController();
    this.#answering = stop;
    this.#message = "";
    this.#isBack = false;
    // Pictures live as long as the page: a tab's storage is too small for them.
    if (text) this.#unsent.keep(key, text);
    this.#record.ask(key, text, pictures);
    this.#bubbles.pin();
    this.#show();
    try {
      for await (const event of this.#api.say(text, key, stop.signal, pictures)) {
        if (event.name === "delta") this.#record.piece(key, event.data.text);
        if (event.name === "done") this.#record.answer(key, event.data);
      }
      this.#unsent.drop(key);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#onFailure(error, key, text, pictures, stop.signal.aborted);
    } finally {
      this.#answering = null;
      stop.abort(); // after a deadline the request would continue
      if (document.activeElement === parts.stop) parts.typed.focus();
      this.#show();
    }
  }

  /**
   * @param {ApiError} error
   * @param {string} key
   * @param {string} text
   * @param {Attached[]} pictures
   * @param {boolean} stopped
   */
  #onFailure(error, key, text, pictures, stopped) {
    if (error.gone) {
      this.#onGone();
    } else if (stopped && this.#record.stop(key)) {
      this.#unsent.drop(key);
    } else if (error.refused) {
      this.#unsent.drop(key);
      this.#record.withdraw(key);
      // Something else may have been typed in the meantime.
      parts.typed.value = [text, parts.typed.value].filter(Boolean).join("\n");
      this.#attachments.putBack(pictures);
      this.#message = error.message;
    } else {
      this.#offerAgain(key, text, t(stopped ? "stopped_before" : "not_answered"), pictures);
      if (!stopped) this.#message = t("question_kept", { why: error.message });
    }
  }

  /**
   * @param {string} key
   * @param {string} text
   * @param {string} why
   * @param {Attached[]} [pictures]
   */
  #offerAgain(key, text, why, pictures = []) {
    this.#record.failed(key, why, () => this.#say(key, text, pictures));
  }

  async #delete() {
    this.#answering?.abort();
    try {
      await this.#api.remove();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!error.gone) {
        [this.#message, this.#isBack] = [t("not_deleted", { why: error.message }), false];
        this.#show();
        return;
      }
    }
    this.#end("was_deleted", "was_deleted_text");
  }

  #onGone() {
    this.#end("no_conversation", "no_conversation_text");
  }

  /**
   * @param {Key} title
   * @param {Key} text
   */
  #end(title, text) {
    this.#follower.stop();
    this.#unsent.forget();
    parts.conversation.replaceChildren();
    showEnd(t(title), t(text));
  }

  #show() {
    if (document.body.dataset.state === "gone") return;
    const state = this.#away ? "away" : this.#answering ? "answering" : this.#loading ? "loading" : "ready";
    document.body.dataset.state = state;
    write(parts.state, t(LABELS[state]));
    parts.hero.hidden = this.#loading || !this.#bubbles.empty;
    parts.earlier.hidden = this.#loading || !this.#record.hasEarlier;
    parts.send.hidden = Boolean(this.#answering);
    parts.stop.hidden = !this.#answering;
    parts.send.disabled = this.#loading || (!parts.typed.value.trim() && this.#attachments.empty);
    const speaker = SPEAKERS[this.#tier];
    showNotice(parts.speaker, speaker ? t(speaker) : "");
    parts.step.hidden = !this.#step;
    write(parts.stepText, this.#step ? t(this.#step) : "");
    const text = this.#isBack ? t("server_is_back") : this.#message || (this.#away ? t("server_away_kept") : "");
    showNotice(parts.notice, text, { bad: !this.#isBack });
  }
}

/**
 * Show that this page has no conversation, and where to continue.
 *
 * @param {string} title
 * @param {string} text
 * @param {{ state?: string, link?: string, href?: string }} [options]
 */
function showEnd(title, text, { state = t(LABELS.gone), link = t("begin_new"), href = "/s/new" } = {}) {
  // Nothing is kept here that reading the page again would lose.
  chooseLanguage(part("language", HTMLSelectElement), () => location.reload());
  document.body.dataset.state = "gone";
  document.title = `${title} – Parley`;
  write(parts.state, state);
  for (const node of [parts.hero, parts.earlier, parts.conversation, parts.paths, parts.dock, parts.call]) {
    node.hidden = true;
  }
  parts.endTitle.textContent = title;
  parts.endText.textContent = text;
  parts.endLink.textContent = link;
  parts.endLink.href = href;
  parts.end.hidden = false;
  parts.endTitle.focus();
}

async function open() {
  const [, id] = location.pathname.match(/^\/s\/([^/]+)\/?$/) ?? [];
  if (id !== "new") {
    if (id !== undefined && SessionApi.isId(id)) new SessionPage(new SessionApi(id));
    else showEnd(t("no_conversation"), t("address_incomplete"));
    return;
  }
  let api;
  try {
    api = await SessionApi.create();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const isLocked = error.status === 401;
    const next = isLocked
      ? { state: t(LABELS.locked), link: t("log_in"), href: "/admin" }
      : { state: t(LABELS.away), link: t("try_again") };
    showEnd(t("not_started"), error.message, next);
    return;
  }
  // Going back must not begin another one.
  history.replaceState(null, "", `/s/${api.id}`);
  new SessionPage(api);
}

translate(document);
open();
