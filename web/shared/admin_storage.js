// Storage on the operator's page: recordings, the disk, uploads and the session store, and the retention of recordings, which can
// be run by hand once a dry run has shown what it removes.

import * as api from "./admin_api.js";
import { ago, sizeOf } from "./admin_card.js";
import { element, part, write } from "./element.js";
import { counted, dateAndTime, t, tIfKnown } from "./operator_language.js";

/** @import { RetentionRun, Storage, StoredRecordings } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { CardActions } from "./admin_card.js" */

const parts = {
  facts: part("storage-facts", HTMLElement),
  next: part("storage-next", HTMLElement),
  nextWhat: part("storage-next-what", HTMLElement),
  job: part("storage-job", HTMLElement),
  retention: part("retention", HTMLElement),
  dryRun: part("dry-run", HTMLButtonElement),
  removeNow: part("remove-now", HTMLButtonElement),
  run: part("retention-run", HTMLElement),
  removed: part("retention-removed", HTMLElement),
};

/** @type {Record<Exclude<Storage["job"], "">, Key>} */
const JOBS = { measuring: "admin_job_measuring", "dry run": "admin_job_dry_run", removing: "admin_job_removing" };

export class StorageCard {
  #actions;
  #coming = 0; // sessions that the newest dry run names

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
    parts.dryRun.addEventListener("click", () => actions.run(() => this.#start(true)));
    parts.removeNow.addEventListener("click", () => actions.run(() => this.#remove()));
  }

  /** @param {Storage} storage */
  show(storage) {
    const { job, problem, recordings, run } = storage;
    list(parts.facts, factsOf(storage));
    write(parts.job, job ? t(JOBS[job]) : problem);
    parts.job.hidden = !parts.job.textContent;
    parts.job.classList.toggle("bad", !job && Boolean(problem));
    this.#showNext(storage, recordings);
    parts.retention.hidden = !removes(storage);
    this.#coming = run?.dry_run ? run.sessions : 0;
    parts.dryRun.disabled = Boolean(job);
    parts.removeNow.disabled = Boolean(job) || !this.#coming;
    write(parts.run, run ? resultOf(run) : "");
    const removed = run?.removed ?? [];
    list(parts.removed, removed.map(({ session_id: id, bytes, reason }) => [id, t("admin_removed_of", { size: sizeOf(bytes), reason: reasonOf(reason) })]));
  }

  /**
   * @param {Storage} storage
   * @param {StoredRecordings | null} recordings
   */
  #showNext(storage, recordings) {
    const next = recordings?.next ?? [];
    write(parts.nextWhat, ruleOf(storage));
    list(parts.next, next.map(({ session_id: id, bytes, due_at: due, reason }) => {
      const at = Date.parse(due);
      const when = at <= Date.now() ? t("admin_next_run") : t("admin_from_on", { time: dateAndTime(1_000 * at) });
      return [id, t("admin_due", { when, reason: reasonOf(reason), size: sizeOf(bytes) })];
    }));
  }

  /** @param {boolean} dryRun */
  async #start(dryRun) {
    await api.runRetention(dryRun);
    await this.#actions.lookAgain();
  }

  async #remove() {
    const title = t("admin_purge_title", { sessions: sessionsOf(this.#coming) });
    if (await this.#actions.confirmed(title, t("admin_purge_text"), t("admin_remove"))) await this.#start(false);
  }
}

/** @param {Storage} storage */
function removes({ retention_days: days, max_storage_gb: mostGb }) {
  return days !== null || mostGb !== null;
}

/** @param {Storage} storage */
function ruleOf(storage) {
  const { retention_days: days, max_storage_gb: mostGb } = storage;
  if (!removes(storage)) return t("admin_no_rule");
  const values = { days: counted(days ?? 0, "admin_one_day", "admin_days"), most: mostGb ?? 0 };
  if (mostGb === null) return t("admin_rule_age", values);
  return t(days === null ? "admin_rule_capacity" : "admin_rule_both", values);
}

/**
 * @param {Storage} storage
 * @returns {[string, string][]}
 */
function factsOf({ recordings, uploads, store_bytes: storeBytes }) {
  /** @type {[string, string][]} */
  const facts = [];
  if (recordings) {
    const { calls, sessions, bytes, pinned_sessions: pinned, pinned_bytes: pinnedBytes } = recordings;
    facts.push(
      [t("admin_recordings"), t("admin_recordings_of", { calls: callsOf(calls), sessions: sessionsOf(sessions), size: sizeOf(bytes) })],
      [t("admin_pinned"), pinned ? t("admin_pinned_of", { sessions: sessionsOf(pinned), size: sizeOf(pinnedBytes) }) : t("admin_none")],
      [t("admin_free"), t("admin_free_of", { free: sizeOf(recordings.free_bytes), all: sizeOf(recordings.disk_bytes) })],
      [t("admin_measured"), ago(recordings.measured_at)],
    );
  }
  facts.push([t("admin_store"), storeBytes === null ? t("admin_not_known") : sizeOf(storeBytes)]);
  if (uploads) {
    const failed = uploads.failures;
    const failures = failed ? counted(failed, "admin_uploads_one_failure", "admin_uploads_failures") : "";
    facts.push([t("admin_uploads"), t("admin_uploads_of", { waiting: uploads.waiting, moved: uploads.moved, failures })]);
  }
  return facts;
}

/** @param {RetentionRun} run */
function resultOf({ at, dry_run: dryRun, sessions, bytes, kept, problem }) {
  if (problem) return t("admin_run_failed", { ago: ago(at), why: problem });
  const stay = kept ? t("admin_run_stay", { sessions: sessionsOf(kept) }) : "";
  const values = { ago: ago(at), sessions: sessionsOf(sessions), size: sizeOf(bytes), stay };
  return t(dryRun ? "admin_run_dry" : "admin_run_removed", values);
}

/** @type {(reason: string) => string} */
const reasonOf = (reason) => tIfKnown(`admin_reason_${reason}`, reason);
/** @type {(count: number) => string} */
const sessionsOf = (count) => counted(count, "admin_one_session", "admin_sessions");
/** @type {(count: number) => string} */
const callsOf = (count) => counted(count, "admin_one_call", "admin_calls");

/**
 * Show pairs of a name and a value; what is the same keeps its node.
 *
 * @param {HTMLElement} parent
 * @param {[string, string][]} pairs
 */
function list(parent, pairs) {
  while (parent.children.length > 2 * pairs.length) parent.lastElementChild?.remove();
  while (parent.children.length < 2 * pairs.length) parent.append(element("dt"), element("dd"));
  pairs.forEach(([name, value], place) => {
    write(parent.children[2 * place], name);
    write(parent.children[2 * place + 1], value);
  });
  parent.hidden = !pairs.length;
}
