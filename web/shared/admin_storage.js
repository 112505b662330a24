// Storage on the operator's page: recordings, the disk, uploads and the session store, and the retention of recordings, which can
// be run by hand once a dry run has shown what it removes.

import * as api from "./admin_api.js";
import { ago, count, sizeOf } from "./admin_card.js";
import { element, part, write } from "./element.js";

/** @import { RetentionRun, Storage, StoredRecordings } from "../types/server.js" */
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

/** @type {Record<Storage["job"], string>} */
const JOBS = {
  "": "",
  measuring: "Measuring the recordings…",
  "dry run": "Finding out what retention would remove…",
  removing: "Removing recordings…",
};

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
    write(parts.job, JOBS[job] || problem);
    parts.job.hidden = !parts.job.textContent;
    parts.job.classList.toggle("bad", !job && Boolean(problem));
    this.#showNext(storage, recordings);
    parts.retention.hidden = !removes(storage);
    this.#coming = run?.dry_run ? run.sessions : 0;
    parts.dryRun.disabled = Boolean(job);
    parts.removeNow.disabled = Boolean(job) || !this.#coming;
    write(parts.run, run ? resultOf(run) : "");
    const removed = run?.removed ?? [];
    list(parts.removed, removed.map(({ session_id: id, bytes, reason }) => [id, `${sizeOf(bytes)}, ${reason}`]));
  }

  /**
   * @param {Storage} storage
   * @param {StoredRecordings | null} recordings
   */
  #showNext(storage, recordings) {
    const next = recordings?.next ?? [];
    write(parts.nextWhat, ruleOf(storage));
    list(parts.next, next.map(({ session_id: id, bytes, due_at: due, reason }) => {
      const when = Date.parse(due) <= Date.now() ? "with the next run" : `from ${new Date(due).toLocaleString()} on`;
      return [id, `${when}, by ${reason}, ${sizeOf(bytes)}`];
    }));
  }

  /** @param {boolean} dryRun */
  async #start(dryRun) {
    await api.runRetention(dryRun);
    await this.#actions.lookAgain();
  }

  async #remove() {
    const title = `Remove the recordings of ${count(this.#coming, "session")}?`;
    const text = "Their sound, pictures and timelines are deleted, and the words of the conversations stay. This cannot be undone.";
    if (await this.#actions.confirmed(title, text, "Remove")) await this.#start(false);
  }
}

/** @param {Storage} storage */
function removes({ retention_days: days, max_storage_gb: mostGb }) {
  return days !== null || mostGb !== null;
}

/** @param {Storage} storage */
function ruleOf(storage) {
  const { retention_days: days, max_storage_gb: mostGb } = storage;
  if (!removes(storage)) return "Retention removes nothing here: the deployment sets neither recording.retention_days nor max_storage_gb.";
  const rules = [
    ...(days === null ? [] : [`recordings that were last used ${count(days, "day")} ago`]),
    ...(mostGb === null ? [] : [`the least recently used above ${mostGb} GB`]),
  ];
  return `Once a day, retention removes ${rules.join(", and ")}. Next:`;
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
      ["Recordings", `${count(calls, "call")} of ${count(sessions, "session")}, ${sizeOf(bytes)}`],
      ["Pinned", pinned ? `${count(pinned, "session")}, ${sizeOf(pinnedBytes)}` : "none"],
      ["Free on the disk", `${sizeOf(recordings.free_bytes)} of ${sizeOf(recordings.disk_bytes)}`],
      ["Measured", `${ago(recordings.measured_at)} ago`],
    );
  }
  facts.push(["Session store", storeBytes === null ? "not known" : sizeOf(storeBytes)]);
  if (uploads) {
    const failures = uploads.failures ? `, ${count(uploads.failures, "failed attempt")}` : "";
    facts.push(["Uploads", `${uploads.waiting} waiting, ${uploads.moved} moved since the start${failures}`]);
  }
  return facts;
}

/** @param {RetentionRun} run */
function resultOf({ at, dry_run: dryRun, sessions, bytes, kept, problem }) {
  const when = `${ago(at)} ago`;
  if (problem) return `The run ${when} failed: ${problem}`;
  const verb = dryRun ? "would remove" : "removed";
  const stay = kept ? ` ${count(kept, "session")} that should go stay: pinned, in use, or with something foreign.` : "";
  return `The ${dryRun ? "dry run" : "run"} ${when} ${verb} ${count(sessions, "session")}, ${sizeOf(bytes)}.${stay}`;
}

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
