// Replay of a recorded call with the configuration that the server has now, for the operator: begin it, follow it, cancel it, and
// read what it changed, turn by turn.

import { operator } from "./admin_api.js";
import { clockOf } from "./clock_text.js";
import { element, showNotice, write } from "./element.js";
import { messageOf } from "./guards.js";
import { t, tIfKnown } from "./language.js";

/** @import { Key } from "./language.js" */
/** @import { CallReplay, ComparedTurn, RecordingDetail, ReplayComparison, ReplayedTurn } from "../types/server.js" */
/** @import { SessionApi } from "./session_api.js" */

const LOOK_MS = 1_500;

export class Replays {
  #api;
  #seek;
  #fold = element("details", "replays");
  #summary = element("summary");
  #about = element("p");
  #begin = element("button");
  #cancel = element("button");
  #status = element("p");
  #progress = element("progress");
  #result = element("div");
  /** @type {RecordingDetail | null} */
  #call = null;
  /** @type {Promise<boolean> | undefined} */
  #isOperator;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #looking;

  /**
   * @param {SessionApi} api
   * @param {HTMLElement} root gets the fold, which only the operator sees
   * @param {(at_ms: number) => void} seek moves the player to a time of the call
   */
  constructor(api, root, seek) {
    this.#api = api;
    this.#seek = seek;
    this.#fold.dataset.role = "replays";
    this.#fold.hidden = true;
    this.#begin.type = this.#cancel.type = "button";
    this.#begin.dataset.role = "replay-begin";
    this.#status.role = "status";
    this.#status.dataset.role = "replay-status";
    this.#result.dataset.role = "replay-result";
    this.#begin.addEventListener("click", () => this.#act((call) => this.#api.beginReplay(call)));
    this.#cancel.addEventListener("click", () => this.#act((call) => this.#api.cancelReplay(call)));
    root.append(this.#fold);
  }

  /** @param {RecordingDetail} call that was chosen */
  async show(call) {
    this.#call = call;
    clearTimeout(this.#looking);
    write(this.#summary, t("rec_replay"));
    write(this.#about, t("rec_replay_about"));
    write(this.#begin, t("rec_replay_begin"));
    write(this.#cancel, t("rec_replay_cancel"));
    this.#progress.ariaLabel = t("rec_replay");
    this.#show(null);
    // A server that does not answer has no replays for this page.
    this.#isOperator ??= operator().then(
      ({ is_operator }) => is_operator,
      () => false,
    );
    if (!(await this.#isOperator) || this.#call !== call) return;
    if (!this.#fold.childElementCount) {
      const choices = element("p", "act");
      choices.append(this.#begin, this.#cancel, this.#progress);
      this.#fold.append(this.#summary, this.#about, choices, this.#status, this.#result);
    }
    this.#fold.hidden = false;
    await this.#look(call);
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (this.#call) this.show(this.#call);
  }

  /** @param {(call: string) => Promise<unknown>} act */
  async #act(act) {
    const call = this.#call;
    if (!call) return;
    clearTimeout(this.#looking);
    try {
      await act(call.call_id);
    } catch (error) {
      this.#say(messageOf(error), true);
      return;
    }
    await this.#look(call);
  }

  /**
   * Read the state, and again while the replay goes on and the call is shown.
   *
   * @param {RecordingDetail} call
   */
  async #look(call) {
    /** @type {CallReplay} */
    let replay;
    try {
      replay = await this.#api.replay(call.call_id);
    } catch (error) {
      if (this.#call !== call) return;
      this.#show(null);
      this.#say(messageOf(error), true);
      return;
    }
    if (this.#call !== call) return;
    this.#show(replay.state === "none" ? null : replay);
    // Another look may have been on its way: the page keeps to one.
    clearTimeout(this.#looking);
    if (isOn(replay)) this.#looking = setTimeout(() => this.#look(call), LOOK_MS);
  }

  /** @param {CallReplay | null} replay */
  #show(replay) {
    this.#begin.disabled = isOn(replay);
    this.#cancel.hidden = this.#progress.hidden = !isOn(replay);
    this.#result.replaceChildren();
    if (!replay) {
      this.#say("");
      return;
    }
    if (replay.state === "replaying") {
      this.#progress.max = Math.max(1, replay.duration_ms);
      this.#progress.value = replay.at_ms;
    } else {
      this.#progress.removeAttribute("value");
    }
    const times = { at: clockOf(replay.at_ms), of: clockOf(replay.duration_ms), why: replay.reason };
    this.#say(t(/** @type {Key} */ (`rec_replay_${replay.state}`), times), replay.state === "failed");
    if (replay.comparison) this.#result.append(...this.#comparison(replay.call_id, replay.comparison));
  }

  /**
   * @param {string} text
   * @param {boolean} [bad]
   */
  #say(text, bad = false) {
    showNotice(this.#status, text, { bad });
  }

  /**
   * @param {string} call
   * @param {ReplayComparison} comparison
   */
  #comparison(call, comparison) {
    const facts = element("p", "", factsOf(comparison));
    const notes = comparison.notes.map((note) => element("p", "", `${note.charAt(0).toUpperCase()}${note.slice(1)}.`));
    const link = element("a", "", t("rec_replay_page"));
    link.href = this.#api.replayPagePath(call);
    link.download = `replay-${call}.html`;
    const saved = element("p");
    saved.append(link);
    const scrolled = element("div", "scrolled");
    scrolled.tabIndex = 0;
    scrolled.role = "region";
    scrolled.ariaLabel = t("rec_replay_label");
    scrolled.append(this.#table(comparison.turns));
    return [facts, ...notes, scrolled, saved];
  }

  /** @param {ComparedTurn[]} turns */
  #table(turns) {
    const table = element("table");
    const [head, row, body] = [element("thead"), element("tr"), element("tbody")];
    const titles = ["rec_turn", "rec_caller", "rec_agent", "rec_waited", "rec_latency", "rec_cost", "rec_differs"];
    for (const title of titles) {
      const cell = element("th", "", t(/** @type {Key} */ (title)));
      cell.scope = "col";
      row.append(cell);
    }
    head.append(row);
    body.append(...turns.map((turn) => this.#row(turn)));
    table.append(element("caption", "unseen", t("rec_replay_label")), head, body);
    return table;
  }

  /** @param {ComparedTurn} turn */
  #row(turn) {
    const { then, now } = turn;
    const at_ms = (then ?? now)?.at_ms ?? 0;
    const row = element("tr", turn.differences.length ? (turn.is_decided_alike ? "heard" : "decided") : "");
    const head = element("th");
    head.scope = "row";
    const button = element("button", "", clockOf(at_ms));
    button.type = "button";
    // Its times count from the caller's arrival.
    button.addEventListener("click", () => this.#seek(at_ms + arrivalOf(this.#call)));
    head.append(button);
    const why = element("td", "", differencesOf(turn));
    for (const reason of turn.reasons) why.append(element("small", "", reason));
    /** @type {(ms: number | null) => string} */
    const time = (ms) => (ms === null ? "–" : `${ms} ms`);
    row.append(
      head,
      both(then, now, (each) => [each.text || t("rec_unasked")]),
      both(then, now, saidOf),
      both(then, now, (each) => [time(each.waited_ms)]),
      both(then, now, (each) => [time(each.latency_ms)]),
      both(then, now, (each) => [each.cost === null ? "–" : each.cost.toPrecision(3)]),
      why,
    );
    return row;
  }
}

/** @param {CallReplay | null} replay */
function isOn(replay) {
  return replay !== null && (replay.state === "loading" || replay.state === "replaying");
}

/**
 * Return when the caller arrived: where that is not known, the recording begins with it.
 *
 * @param {RecordingDetail | null} call
 */
export function arrivalOf(call) {
  return call?.events.find((event) => event.event === "CallerJoined")?.at_ms ?? 0;
}

/** @param {ComparedTurn} turn */
function differencesOf(turn) {
  return turn.differences.map((each) => tIfKnown(`rec_differs_${each}`, each)).join(", ") || t("rec_same");
}

/** @param {ComparedTurn["then"] & object} turn */
function saidOf(turn) {
  const rest = turn.unheard ? element("s", "", turn.unheard) : "";
  return [turn.heard || (turn.unheard ? "" : "–"), rest ? " " : "", rest];
}

/**
 * Return a cell with the same content once, or with that of then and now.
 *
 * @param {ReplayedTurn | null} then
 * @param {ReplayedTurn | null} now
 * @param {(turn: ReplayedTurn) => (string | Node)[]} content
 */
function both(then, now, content) {
  const cell = element("td");
  /** @type {(turn: ReplayedTurn) => HTMLElement} */
  const side = (turn) => {
    const made = element("div");
    made.append(...content(turn));
    return made;
  };
  if (then && now && side(then).textContent === side(now).textContent) {
    cell.append(...content(then));
    return cell;
  }
  for (const [name, turn] of /** @type {const} */ ([[t("rec_then"), then], [t("rec_now"), now]])) {
    if (!turn) continue;
    const shown = side(turn);
    shown.prepend(element("b", "", `${name}: `));
    cell.append(shown);
  }
  return cell;
}

/** @param {ReplayComparison} comparison */
function factsOf(comparison) {
  const { turns, median, cost } = comparison;
  const decided = turns.filter((turn) => !turn.is_decided_alike).length;
  const heard = turns.filter((turn) => turn.is_decided_alike && turn.differences.length).length;
  const facts = [t("rec_replay_facts", { turns: turns.length, decided, heard })];
  if (median.latency_ms) facts.push(t("rec_replay_latency", median.latency_ms));
  if (median.waited_ms) facts.push(t("rec_replay_waited", median.waited_ms));
  if (cost.then !== null || cost.now !== null) {
    /** @type {(value: number | null) => string} */
    const amount = (value) => (value === null ? "–" : `${value.toPrecision(3)} ${cost.currency}`.trim());
    facts.push(t("rec_replay_cost", { then: amount(cost.then), now: amount(cost.now) }));
  }
  return facts.join(" ");
}
