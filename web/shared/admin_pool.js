// Workers and queue on the operator's page. A caller who waits can be removed from the queue.

import * as api from "./admin_api.js";
import { ago, cell, rowHead, since as sinceThen, words } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { required } from "./guards.js";
import { keyed, span } from "./lists.js";
import { t, tIfKnown } from "./operator_language.js";

/** @import { Ticket, WorkerView } from "../types/server.js" */
/** @import { CardActions } from "./admin_card.js" */

/** @type {Record<string, string>} */
const TONES = { idle: "", loading: "wait", error: "bad", offline: "bad" };

const parts = {
  workers: part("workers", HTMLElement),
  workersTable: required(part("workers", HTMLElement).closest("div"), "the table of workers"),
  noWorkers: part("no-workers", HTMLElement),
  queue: part("queue", HTMLElement),
  queueTable: part("queue-table", HTMLElement),
  noQueue: part("no-queue", HTMLElement),
};

export class PoolCards {
  #actions;

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /**
   * @param {WorkerView[]} workers
   * @param {Ticket[]} queue
   */
  show(workers, queue) {
    keyed(parts.workers, workers, "worker_id", makeWorker, updateWorker);
    parts.noWorkers.hidden = workers.length > 0;
    parts.workersTable.hidden = workers.length === 0;
    keyed(parts.queue, queue, "ticket_id", (ticket) => this.#ticket(ticket), updateTicket);
    parts.noQueue.hidden = queue.length > 0;
    parts.queueTable.hidden = queue.length === 0;
  }

  /** @param {Ticket} ticket */
  #ticket({ ticket_id: id, kind, session_id: session, transport }) {
    // A caller who waits for a line has no session yet.
    const caller = session ?? t("admin_a_caller", { transport: transport ?? "–" });
    const made = element("tr");
    made.append(
      element("td", "number"),
      rowHead(session === null ? caller : element("code", "", session)),
      element("td"),
      element("td", "number"),
      element("td", "number"),
      element("td", "", kind),
      element("td", "", transport ?? "–"),
    );
    const button = element("button", "quiet", t("admin_remove"));
    button.type = "button";
    button.setAttribute("aria-label", t("admin_remove_caller", { caller }));
    button.addEventListener("click", () => this.#actions.run(() => this.#remove(id, caller)));
    made.append(cell("td", "", button));
    return made;
  }

  /**
   * @param {string} id
   * @param {string} caller
   */
  async #remove(id, caller) {
    const [title, text] = [t("admin_remove_title", { caller }), t("admin_remove_text")];
    if (!(await this.#actions.confirmed(title, text, t("admin_remove")))) return;
    const { success } = await api.takeOut(id);
    this.#actions.say(t(success ? "admin_removed" : "admin_no_longer", { caller }));
    await this.#actions.lookAgain();
  }
}

/** @param {WorkerView} worker */
function makeWorker({ worker_id: id }) {
  const made = element("tr");
  made.append(
    rowHead(id), cell("td", "", element("span", "badge")), cell("td", "", element("code")), element("td"), element("td", "number"),
    element("td", "number"), element("td", "number"), element("td"), cell("td", "", element("code")),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {WorkerView} worker
 */
function updateWorker(row, worker) {
  const [, status, session, task, since, placed, gpu, heard, address] = row.children;
  const badge = found("span", HTMLElement, status);
  write(badge, tIfKnown(`admin_status_${worker.status}`, words(worker.status)));
  badge.dataset.tone = TONES[worker.status] ?? "good";
  // Its own term, where that differs.
  badge.title = worker.state && worker.state !== worker.status ? t("admin_reported_state", { state: words(worker.state) }) : "";
  write(found("code", HTMLElement, session), worker.current_session_id ?? "–");
  write(task, taskOf(worker.current_request_type, "–"));
  write(since, sinceThen(worker.task_started_at));
  write(placed, String(worker.total_requests));
  write(gpu, worker.gpu_id === null ? "–" : String(worker.gpu_id));
  write(heard, worker.last_heartbeat ? ago(worker.last_heartbeat) : t("admin_never"));
  write(found("code", HTMLElement, address), worker.host ? `${worker.host}:${worker.port}` : "–");
}

/**
 * @param {HTMLElement} row
 * @param {Ticket} ticket
 */
function updateTicket(row, ticket) {
  const [place, , task, waited, left] = row.children;
  write(place, String(ticket.position));
  write(task, taskOf(ticket.request_type, t("admin_a_line")));
  write(waited, span(ticket.wait_elapsed_s));
  write(left, ticket.estimated_wait_s === null ? t("admin_not_known") : t("admin_about", { time: span(ticket.estimated_wait_s) }));
}

/**
 * @param {string | null | undefined} task
 * @param {string} none
 */
function taskOf(task, none) {
  return task ? tIfKnown(`admin_task_${task}`, task) : none;
}
