// Operator's page. Reads the state of the server every two seconds while the page is visible, and has its cards show it; each card
// is a module of its own. Typed text and the focus survive a refresh.

import * as api from "./admin_api.js";
import { AppsCard } from "./admin_apps.js";
import { EstimatesCard } from "./admin_estimates.js";
import { showFailures } from "./admin_failures.js";
import { LibraryCards } from "./admin_library.js";
import { PoolCards } from "./admin_pool.js";
import { SettingsCard } from "./admin_settings.js";
import { StorageCard } from "./admin_storage.js";
import { showUsage } from "./admin_usage.js";
import { element, found, part, showNotice, write } from "./element.js";
import { messageOf } from "./guards.js";
import { keyed } from "./lists.js";
import { LiveCalls } from "./live_calls.js";
import { chooseLanguage, t, translate } from "./operator_language.js";

/** @import { LiveCall, Status } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { CardActions } from "./admin_card.js" */

const LOOK_MS = 2_000;
// Longest pause between attempts to reach a server that is away.
const MOST_LOOK_MS = 15_000;
const NOTICE_MS = 8_000;

/** @typedef {"loading" | "locked" | "live" | "paused" | "away"} PageState */

/** @type {Record<PageState, Key>} */
const STATES = { loading: "op_loading", locked: "op_locked", live: "op_live", paused: "op_paused", away: "op_away" };
// Lists whose nodes have words of their own, and are made anew in another language.
const LISTS = ["tiles", "workers", "queue", "live", "models", "calls", "circuits", "failures", "processes", "documents", "voices"];

const parts = {
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
  locked: part("locked", HTMLElement),
  login: part("login", HTMLFormElement),
  token: part("token", HTMLInputElement),
  tokenEnv: part("token-env", HTMLElement),
  logOut: part("log-out", HTMLButtonElement),
  open: part("open", HTMLElement),
  tiles: part("tiles", HTMLElement),
  exposure: part("exposure", HTMLElement),
  confirm: part("confirm", HTMLDialogElement),
  confirmTitle: part("confirm-title", HTMLElement),
  confirmText: part("confirm-text", HTMLElement),
  confirmGo: part("confirm-go", HTMLElement),
};

class Page {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #noticeTimer;
  #failures = 0;
  /** @type {((decision: string) => void) | undefined} settles the question that the dialog asks */
  #decide;
  // A refresh that began before a change shows the state before it: it is dropped.
  #epoch = 0;
  #live = new LiveCalls({
    say: (text) => this.#say(text),
    end: (call) => this.#do(() => this.#endCall(call)),
  });
  /** @type {CardActions} */
  #actions = {
    run: (work) => this.#do(work),
    say: (text, options) => this.#say(text, options),
    confirmed: (title, text, go) => this.#confirmed(title, text, go),
    lookAgain: () => this.#lookAgain(),
  };
  #pool = new PoolCards(this.#actions);
  #apps = new AppsCard(this.#actions);
  #estimates = new EstimatesCard(this.#actions);
  #library = new LibraryCards(this.#actions);
  #storage = new StorageCard(this.#actions);
  #settings = new SettingsCard(this.#actions);

  begin() {
    chooseLanguage(part("language", HTMLSelectElement), () => this.#onLanguage());
    const offered = api.offeredToken();
    parts.login.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#do(() => this.#logIn(parts.token.value));
    });
    parts.logOut.addEventListener("click", () => this.#do(() => this.#logOut()));
    parts.confirm.addEventListener("close", () => parts.confirm.open || this.#decide?.(parts.confirm.returnValue));
    document.addEventListener("visibilitychange", () => this.#onVisibility());
    this.#begin(offered);
  }

  #onLanguage() {
    const state = /** @type {PageState} */ (document.body.dataset.state);
    this.#show(state);
    for (const role of LISTS) part(role, HTMLElement).replaceChildren();
    this.#settings.draw();
    if (state === "live") this.#lookAgain();
  }

  /** @param {string | null} offered token of the address */
  async #begin(offered) {
    if (offered) await this.#do(() => this.#logIn(offered));
    if (!offered || document.body.dataset.state === "loading") await this.#enter();
  }

  // Refreshing.

  async #enter() {
    clearTimeout(this.#timer);
    try {
      const { is_operator: isOperator, token_env: tokenEnv } = await api.operator();
      this.#failures = 0;
      if (isOperator) {
        this.#show("live");
        await this.#look();
      } else {
        write(parts.tokenEnv, tokenEnv);
        this.#lock();
      }
    } catch (error) {
      this.#away(error);
      this.#timer = setTimeout(() => this.#enter(), this.#waitMs());
    }
  }

  async #look() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const epoch = this.#epoch;
    try {
      const seen = await api.look();
      if (epoch !== this.#epoch) return;
      this.#failures = 0;
      this.#show(document.hidden ? "paused" : "live");
      this.#render(seen);
    } catch (error) {
      if (epoch !== this.#epoch) return;
      if (isForbidden(error)) {
        await this.#enter();
        return;
      }
      this.#away(error);
    }
    if (!document.hidden) this.#timer = setTimeout(() => this.#look(), this.#waitMs());
  }

  /** Refresh at once after a change; a refresh under way would show the state before it. */
  #lookAgain() {
    this.#epoch += 1;
    return this.#look();
  }

  #waitMs() {
    return Math.min(LOOK_MS * 2 ** Math.max(0, this.#failures - 1), MOST_LOOK_MS);
  }

  /** @param {unknown} error */
  #away(error) {
    this.#failures += 1;
    this.#show("away");
    this.#say(messageOf(error), { bad: true });
  }

  #onVisibility() {
    if (document.body.dataset.state === "locked") return;
    if (document.hidden) {
      clearTimeout(this.#timer);
      this.#epoch += 1;
      this.#show("paused");
    } else {
      this.#enter();
    }
  }

  /** @param {PageState} state */
  #show(state) {
    const was = document.body.dataset.state;
    document.body.dataset.state = state;
    write(parts.state, t(STATES[state]));
    parts.open.hidden = state === "locked" || state === "loading" || (state === "away" && was === "loading");
    parts.locked.hidden = state !== "locked";
    parts.logOut.hidden = state === "locked";
    if (was === "away" && state === "live") this.#say("");
  }

  #lock() {
    this.#epoch += 1;
    this.#live.stop();
    this.#show("locked");
    parts.token.focus();
  }

  // Changing.

  /**
   * Do work, and show why it failed.
   *
   * @param {() => unknown} work
   */
  async #do(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      this.#say(error.message, { bad: true });
      if (isForbidden(error) && document.body.dataset.state !== "locked") await this.#enter();
    }
  }

  /**
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #say(text, { bad = false } = {}) {
    clearTimeout(this.#noticeTimer);
    showNotice(parts.notice, text, { bad });
    if (text && !bad) this.#noticeTimer = setTimeout(() => showNotice(parts.notice, ""), NOTICE_MS);
  }

  /**
   * Ask the operator to confirm.
   *
   * @param {string} title
   * @param {string} text
   * @param {string} go label of the button that confirms
   */
  async #confirmed(title, text, go) {
    write(parts.confirmTitle, title);
    write(parts.confirmText, text);
    write(parts.confirmGo, go);
    // The event of a closed dialog comes later, and may find the dialog open for this question.
    this.#decide?.(parts.confirm.returnValue);
    parts.confirm.returnValue = "keep";
    parts.confirm.showModal();
    const decision = await new Promise((resolve) => (this.#decide = resolve));
    return decision === "go";
  }

  /** @param {string} token */
  async #logIn(token) {
    await api.logIn(token);
    parts.token.value = "";
    this.#say("");
    await this.#enter();
  }

  async #logOut() {
    await api.logOut();
    this.#lock();
  }

  /** @param {LiveCall} call */
  async #endCall({ call_id: id, transport }) {
    if (!(await this.#confirmed(t("admin_end_title"), t("admin_end_text"), t("admin_end")))) return;
    await api.endCall(id);
    this.#say(t("admin_call_ends", { transport }));
    await this.#lookAgain();
  }

  // Showing.

  /** @param {api.ServerView} seen */
  #render(seen) {
    this.#tiles(seen.status);
    write(parts.exposure, seen.status.exposure ?? "");
    this.#apps.show(seen.apps);
    this.#pool.show(seen.workers, seen.queue);
    this.#live.show(seen.live);
    showUsage(seen.usage);
    showFailures(seen.failures);
    this.#storage.show(seen.storage);
    this.#estimates.show(seen.estimates);
    this.#library.show(seen.library, seen.voices);
  }

  /** @param {Status} status */
  #tiles(status) {
    const tiles = [
      { key: "calls", label: t("admin_tile_calls"), value: status.calls },
      { key: "waiting", label: t("admin_tile_waiting"), value: status.waiting + status.queue_length },
      { key: "duplex", label: t("admin_tile_duplex"), value: status.duplex_workers },
      { key: "busy", label: t("admin_tile_busy"), value: status.busy_workers },
      { key: "idle", label: t("admin_tile_idle"), value: status.idle_workers },
      { key: "loading", label: t("admin_tile_loading"), value: status.loading_workers },
      { key: "down", label: t("admin_tile_down"), value: status.error_workers + status.offline_workers },
    ];
    // Without workers their tiles would show nothing.
    const shown = status.total_workers ? tiles : tiles.slice(0, 2);
    keyed(parts.tiles, shown, "key", makeTile, (node, tile) => {
      write(found("dd", HTMLElement, node), String(tile.value));
      node.classList.toggle("bad", tile.key === "down" && tile.value > 0);
    });
  }
}

/** @param {unknown} error */
function isForbidden(error) {
  return error instanceof api.ApiError && error.status === 403;
}

/** @param {{ label: string }} tile */
function makeTile({ label }) {
  const made = element("div");
  made.append(element("dt", "", label), element("dd"));
  return made;
}

translate(document);
new Page().begin();
