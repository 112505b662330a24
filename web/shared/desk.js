// Desk at which a human takes sessions over. Looks at the sessions of the server every two seconds, also in the background: that is
// the desk's sign of life, without which the server gives its sessions back to the agent. The transcript of the chosen session
// follows its events.

import * as admin from "./admin_api.js";
import { Bubbles } from "./bubbles.js";
import { Call, CallError, openMicrophone } from "./call.js";
import { ApiError, DeskApi, deskId } from "./desk_api.js";
import { element, found, part, showNotice, write } from "./element.js";
import { Follower } from "./follower.js";
import { messageOf } from "./guards.js";
import { keyed, span } from "./lists.js";
import { chooseLanguage, t, tIfKnown, translate, worded } from "./operator_language.js";
import { SessionRecord } from "./record.js";
import { SessionApi } from "./session_api.js";

/** @import { Key } from "./language.js" */
/** @import { DeskSession, TierName } from "../types/server.js" */

const NOTICE_MS = 6_000;
/** @type {import("./bubbles.js").Names} */
const NAMES = { user: "desk_caller", bot: "desk_agent", human: "desk_colleague" };
/** @type {Partial<Record<TierName, string>>} */
const TONES = { waiting: "wait", human: "good" };

/** @typedef {"loading" | "locked" | "live" | "away"} PageState */

/** @type {Record<PageState, Key>} */
const STATES = { loading: "op_loading", locked: "op_locked", live: "op_live", away: "op_away" };

const parts = {
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
  locked: part("locked", HTMLElement),
  login: part("login", HTMLFormElement),
  token: part("token", HTMLInputElement),
  tokenEnv: part("token-env", HTMLElement),
  logOut: part("log-out", HTMLButtonElement),
  closed: part("closed", HTMLElement),
  open: part("open", HTMLElement),
  sessions: part("sessions", HTMLElement),
  noSessions: part("no-sessions", HTMLElement),
  none: part("none", HTMLElement),
  session: part("session", HTMLElement),
  title: part("title", HTMLElement),
  tier: part("tier", HTMLElement),
  facts: part("facts", HTMLElement),
  page: part("page", HTMLAnchorElement),
  speak: part("speak", HTMLButtonElement),
  sound: part("remote-audio", HTMLAudioElement),
  take: part("take", HTMLButtonElement),
  earlier: part("earlier", HTMLButtonElement),
  conversation: part("conversation", HTMLElement),
  answering: part("answering", HTMLFormElement),
  words: part("words", HTMLTextAreaElement),
  whispering: part("whispering", HTMLFormElement),
  whisper: part("whisper", HTMLInputElement),
  returning: part("returning", HTMLFormElement),
  note: part("handover", HTMLInputElement),
};

// Labels of the button.
const SPEAKING = /** @type {const} */ ({ off: "desk_speak", connecting: "desk_connecting", on: "desk_stop_speaking" });
// Leaves the microphone's signal as it is (studio microphones, tests).
const RAW = new URLSearchParams(location.search).has("raw");

class DeskPage {
  #desk = deskId();
  #api = new DeskApi(this.#desk);
  #voice = new Voice(() => this.#showChosen());
  /** @type {DeskSession[]} */
  #sessions = [];
  /** @type {Transcript | null} the chosen session */
  #chosen = null;
  #looking = false;
  /** @type {Set<string>} sessions that this desk has; a server that starts again does not know that */
  #mine = new Set();
  #actions = 0; // a look that began before an action shows the state before it
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #noticeTimer;

  begin() {
    const offered = admin.offeredToken();
    chooseLanguage(part("language", HTMLSelectElement), () => {
      this.#show(/** @type {PageState} */ (document.body.dataset.state));
      this.#render(this.#sessions);
    });
    on(parts.login, () => this.#do(() => this.#logIn(parts.token.value)));
    parts.logOut.addEventListener("click", () => this.#do(() => this.#logOut()));
    parts.speak.addEventListener("click", () => this.#do(() => this.#speak()));
    parts.take.addEventListener("click", () => this.#act((id) => this.#api.take(id)));
    on(parts.answering, () => this.#say());
    parts.words.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#say();
    });
    on(parts.whispering, () => this.#whisper());
    on(parts.returning, () => this.#handBack());
    parts.earlier.addEventListener("click", () => {
      this.#chosen?.record.showEarlier();
      this.#showChosen();
    });
    new Worker("/shared/pulse_worker.js", { type: "module" }).addEventListener("message", () => this.#look());
    this.#begin(offered);
  }

  /** @param {string | null} offered token of the address */
  async #begin(offered) {
    if (offered) await this.#do(() => this.#logIn(offered));
    if (document.body.dataset.state === "loading") await this.#look();
  }

  // Looking.

  async #look() {
    if (this.#looking || document.body.dataset.state === "locked") return;
    this.#looking = true;
    const actions = this.#actions;
    try {
      const { enabled, sessions } = await this.#api.look();
      this.#show("live");
      parts.closed.hidden = enabled;
      parts.open.hidden = !enabled;
      if (actions !== this.#actions) return;
      this.#render(sessions);
      await this.#takeAgain(sessions);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.denied) await this.#lock();
      else this.#away(error);
    } finally {
      this.#looking = false;
    }
  }

  /**
   * Take the sessions again that this desk had before the server started again, once each.
   *
   * @param {DeskSession[]} sessions
   */
  async #takeAgain(sessions) {
    for (const { id, tier, mine } of sessions) {
      const had = this.#mine.has(id);
      if (mine) this.#mine.add(id);
      else this.#mine.delete(id);
      if (had && !mine && tier === "human") await this.#do(() => this.#api.take(id));
    }
  }

  /** @param {unknown} error */
  #away(error) {
    this.#show("away");
    this.#tell(messageOf(error), { bad: true });
  }

  async #lock() {
    this.#choose(null);
    this.#show("locked");
    parts.token.focus();
    try {
      write(parts.tokenEnv, (await admin.operator()).token_env);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the page names the usual variable
    }
  }

  /** @param {string} token */
  async #logIn(token) {
    await admin.logIn(token);
    parts.token.value = "";
    this.#tell("");
    this.#show("loading");
    await this.#look();
  }

  async #logOut() {
    await admin.logOut();
    await this.#lock();
  }

  /** @param {PageState} state */
  #show(state) {
    const was = document.body.dataset.state;
    document.body.dataset.state = state;
    write(parts.state, t(STATES[state]));
    parts.locked.hidden = state !== "locked";
    parts.logOut.hidden = state === "locked" || state === "loading";
    if (state === "locked") parts.open.hidden = parts.closed.hidden = true;
    if (was === "away" && state === "live") this.#tell("");
  }

  /** @param {DeskSession[]} sessions */
  #render(sessions) {
    this.#sessions = sessions;
    const waiting = sessions.filter(({ tier }) => tier === "waiting").length;
    document.title = waiting ? t("desk_title_waiting", { count: waiting }) : t("desk_page_title");
    keyed(parts.sessions, sessions, "id", (session) => this.#row(session), (row, session) => this.#updateRow(row, session));
    parts.noSessions.hidden = sessions.length > 0;
    this.#showChosen();
  }

  /** @param {DeskSession} session */
  #row({ id }) {
    const item = element("li");
    const button = element("button", "caller");
    button.type = "button";
    button.dataset.role = "caller";
    button.append(element("b", "", id.slice(0, 8)), element("span", "badge"), element("small"), element("span", "last"));
    button.addEventListener("click", () => this.#choose(id));
    item.append(button);
    return item;
  }

  /**
   * @param {HTMLElement} row
   * @param {DeskSession} session
   */
  #updateRow(row, session) {
    const button = found("button", HTMLButtonElement, row);
    button.setAttribute("aria-pressed", String(session.id === this.#chosen?.id));
    showTier(found(".badge", HTMLElement, row), session);
    write(found("small", HTMLElement, row), factsOf(session));
    write(found(".last", HTMLElement, row), session.last || t("desk_nothing_yet"));
  }

  // The chosen session.

  /** @param {string | null} id */
  #choose(id) {
    if (id === (this.#chosen?.id ?? null)) return;
    this.#chosen?.close();
    this.#voice.close();
    this.#chosen = id === null ? null : new Transcript(id, () => this.#showChosen());
    for (const field of [parts.words, parts.whisper, parts.note]) field.value = "";
    this.#render(this.#sessions);
  }

  #showChosen() {
    const chosen = this.#chosen;
    parts.none.hidden = chosen !== null;
    parts.session.hidden = chosen === null;
    if (!chosen) return;
    const session = this.#sessions.find(({ id }) => id === chosen.id);
    write(parts.title, nameOf(chosen.id));
    parts.page.href = `/s/${chosen.id}`;
    if (session) showTier(parts.tier, session);
    else showBadge(parts.tier, t("desk_not_live"), "");
    write(parts.facts, session ? factsOf(session) : t("desk_has_left"));
    const mine = Boolean(session?.mine);
    parts.take.hidden = mine;
    parts.speak.hidden = !(mine && session?.can_speak);
    parts.speak.setAttribute("aria-pressed", String(this.#voice.isOpen));
    write(parts.speak, t(SPEAKING[this.#voice.state]));
    if (!mine) this.#voice.close();
    parts.answering.hidden = !mine;
    parts.returning.hidden = !mine;
    parts.earlier.hidden = !chosen.record.hasEarlier;
  }

  async #speak() {
    const chosen = this.#chosen;
    if (this.#voice.isOpen) this.#voice.close();
    else if (chosen) await this.#voice.open(chosen.id, this.#desk);
  }

  async #say() {
    const text = parts.words.value.trim();
    if (!text) return;
    parts.words.value = "";
    parts.words.focus();
    if (!(await this.#act((id) => this.#api.say(id, text)))) {
      parts.words.value = [text, parts.words.value].filter(Boolean).join("\n");
    }
  }

  async #whisper() {
    const text = parts.whisper.value.trim();
    if (!text || !(await this.#act((id) => this.#api.whisper(id, text)))) return;
    parts.whisper.value = "";
    this.#tell(t("desk_instructed"));
  }

  async #handBack() {
    const note = parts.note.value.trim();
    if (await this.#act((id) => this.#api.handBack(id, note))) parts.note.value = "";
  }

  /**
   * Do something with the chosen session; return false when it failed.
   *
   * @param {(id: string) => Promise<unknown>} work
   */
  async #act(work) {
    const chosen = this.#chosen;
    if (!chosen) return false;
    this.#actions += 1;
    const done = await this.#do(() => work(chosen.id));
    this.#actions += 1;
    await this.#look();
    return done;
  }

  /**
   * Do work, and show why it failed. Return false when it did.
   *
   * @param {() => Promise<unknown>} work
   */
  async #do(work) {
    try {
      await work();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof CallError)) throw error;
      this.#tell(error.message, { bad: true });
      if (error instanceof ApiError && error.denied && document.body.dataset.state !== "locked") await this.#lock();
      return false;
    }
  }

  /**
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #tell(text, { bad = false } = {}) {
    clearTimeout(this.#noticeTimer);
    showNotice(parts.notice, text, { bad });
    if (text && !bad) this.#noticeTimer = setTimeout(() => showNotice(parts.notice, ""), NOTICE_MS);
  }
}

/** Call in which the human speaks to the caller. */
class Voice {
  #changed;
  /** @type {Call | null} */
  #call = null;
  /** @type {MediaStream | null} */
  #microphone = null;
  #connected = false;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
  }

  get isOpen() {
    return this.#call !== null;
  }

  /** @returns {keyof typeof SPEAKING} */
  get state() {
    if (!this.#call) return "off";
    return this.#connected ? "on" : "connecting";
  }

  /**
   * Begin to speak. Throws CallError.
   *
   * @param {string} session
   * @param {string} desk
   */
  async open(session, desk) {
    const call = new Call({
      message: () => {},
      sound: (stream) => {
        parts.sound.srcObject = stream;
      },
      end: () => this.close(),
    });
    this.#call = call;
    this.#changed();
    try {
      const microphone = await openMicrophone({ raw: RAW });
      if (call.closed) {
        stop(microphone);
        return;
      }
      this.#microphone = microphone;
      await call.open(microphone, session, { raw: RAW, mode: "desk", sees: false, desk });
      this.#connected = true;
      this.#changed();
    } catch (error) {
      const wanted = !call.closed;
      this.close();
      if (wanted) throw error;
    }
  }

  /** Stop speaking. Safe to call twice. */
  close() {
    const call = this.#call;
    if (!call) return;
    this.#call = null;
    this.#connected = false;
    call.close();
    stop(this.#microphone);
    this.#microphone = null;
    parts.sound.srcObject = null;
    this.#changed();
  }
}

/** @param {MediaStream | null} microphone */
function stop(microphone) {
  for (const track of microphone?.getTracks() ?? []) track.stop();
}

/** Transcript of one session, which grows while it is shown. */
class Transcript {
  #follower;

  /**
   * @param {string} id
   * @param {() => void} changed
   */
  constructor(id, changed) {
    this.id = id;
    // A log of its own: that of the session before may still be filled by what is on its way.
    const log = element("div", "log");
    log.setAttribute("role", "log");
    log.setAttribute("aria-label", t("conversation"));
    log.dataset.attributes = "aria-label:conversation";
    log.tabIndex = 0;
    parts.conversation.replaceChildren(log);
    this.record = new SessionRecord(new Bubbles(log, { names: NAMES }), { perceived: true });
    this.record.fill(true);
    this.#follower = new Follower(new SessionApi(id), {
      past: (events) => {
        for (const event of events) this.record.take(event);
        this.record.fill(false);
        changed();
      },
      event: (event) => this.record.take(event),
      up: () => {},
      away: () => {},
      gone: () => log.replaceChildren(worded(element("p", "note"), () => t("desk_deleted"))),
    });
    this.#follower.start();
  }

  /** Stop following. */
  close() {
    this.#follower.stop();
    parts.conversation.replaceChildren();
  }
}

/**
 * Call a function when a form is submitted.
 *
 * @param {HTMLFormElement} form
 * @param {() => unknown} work
 */
function on(form, work) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    work();
  });
}

/**
 * @param {HTMLElement} badge
 * @param {DeskSession} session
 */
function showTier(badge, { tier, mine, place }) {
  const text = mine ? t("desk_tier_mine") : tier === "waiting" ? t("desk_tier_place", { place }) : t(`desk_tier_${tier}`);
  showBadge(badge, text, TONES[tier] ?? "");
}

/**
 * @param {HTMLElement} badge
 * @param {string} text
 * @param {string} tone
 */
function showBadge(badge, text, tone) {
  write(badge, text);
  badge.dataset.tone = tone;
}

/** @param {DeskSession} session */
function factsOf({ in_call: inCall, since_s: since, tier, reason, cause }) {
  const how = t(inCall ? "desk_in_call" : "desk_in_writing");
  const why = tier === "waiting" ? tIfKnown(`desk_reason_${reason}`, "") : "";
  const long = since === null ? "" : t("desk_for", { time: span(since) });
  return [how, why, tIfKnown(`desk_cause_${cause}`, ""), long].filter(Boolean).join(", ");
}

/** @type {(id: string) => string} */
const nameOf = (id) => t("desk_conversation", { id: id.slice(0, 8) });

translate(document);
new DeskPage().begin();
