// Failures on the operator's page: engines whose fallback answers, what failed how often, restarts and stalls.

import { ago, cell, rowHead, since as sinceThen } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { keyed, span } from "./lists.js";
import { t, tIfKnown } from "./operator_language.js";

/** @import { Circuit, EngineProcess, FailureCount, Failures } from "../types/server.js" */

const parts = {
  circuits: part("circuits", HTMLElement),
  circuitsTable: part("circuits-table", HTMLElement),
  failures: part("failures", HTMLElement),
  failuresTable: part("failures-table", HTMLElement),
  processes: part("processes", HTMLElement),
  processesTable: part("processes-table", HTMLElement),
  stalls: part("stalls", HTMLElement),
  none: part("no-failures", HTMLElement),
};

/** @type {Record<Circuit["state"], string>} */
const TONES = { closed: "good", open: "bad", probing: "wait" };

/**
 * Show the failures of the server.
 *
 * @param {Failures} failures
 */
export function showFailures({ since, circuits, processes, failures, stalls }) {
  const restarted = processes.map((each, place) => ({ ...each, id: `${place}` })).filter((each) => each.restarts || !each.is_ready);
  keyed(parts.circuits, circuits.map((each) => ({ ...each, id: `${each.stage} ${each.engine}` })), "id", makeCircuit, updateCircuit);
  keyed(parts.failures, failures.map((each) => ({ ...each, id: idOf(each) })), "id", makeFailure, updateFailure);
  keyed(parts.processes, restarted, "id", makeProcess, updateProcess);
  parts.circuitsTable.hidden = circuits.length === 0;
  parts.failuresTable.hidden = failures.length === 0;
  parts.processesTable.hidden = restarted.length === 0;
  parts.none.hidden = failures.length + restarted.length > 0;
  write(parts.none, t("admin_no_failures", { time: sinceThen(since) }));
  parts.stalls.hidden = !stalls;
  if (!stalls) return;
  const { count, over_ms: over, longest_ms: longest, last_at: at, last_ms: ms } = stalls;
  const last = at ? t("admin_stalls_last", { ms: ms ?? 0, ago: ago(at) }) : "";
  const key = count === 0 ? "admin_stalls_none" : count === 1 ? "admin_stalls_one" : "admin_stalls";
  write(parts.stalls, t(key, { count, over, longest, last }));
}

/** @param {FailureCount} failure */
function idOf({ kind, stage, engine, successor }) {
  return JSON.stringify([kind, stage, engine, successor]);
}

/** @param {Circuit} circuit */
function makeCircuit({ stage, engine }) {
  const made = element("tr");
  made.append(rowHead(engine), element("td", "", stage), cell("td", "", element("span", "badge")), element("td", "number"));
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {Circuit} circuit
 */
function updateCircuit(row, { state, retry_ms: retryMs }) {
  const badge = found("span", HTMLElement, row);
  write(badge, t(`admin_circuit_${state}`));
  badge.dataset.tone = TONES[state];
  write(row.children[3], state === "open" ? t("admin_in", { time: span(retryMs / 1_000) }) : "–");
}

/** @param {FailureCount} failure */
function makeFailure({ kind, stage, engine, successor }) {
  const made = element("tr");
  const who = successor ? `${engine} → ${successor}` : engine;
  made.append(
    rowHead(tIfKnown(`admin_kind_${kind}`, kind)), element("td", "", stage), element("td", "", who || "–"), element("td", "number"),
    element("td", "number"), element("td", "why"),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {FailureCount} failure
 */
function updateFailure(row, { count: times, last_at: last, reason }) {
  const [, , , number, at, why] = row.children;
  write(number, String(times));
  write(at, ago(last));
  write(why, reason || "–");
}

/** @param {EngineProcess} process */
function makeProcess({ engine }) {
  const made = element("tr");
  made.append(
    rowHead(engine), cell("td", "", element("span", "badge")), element("td", "number"), element("td", "number"), element("td", "why"),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {EngineProcess} process
 */
function updateProcess(row, { is_ready: isReady, restarts, ended_at: ended, reason }) {
  const [, , number, at, why] = row.children;
  const badge = found("span", HTMLElement, row);
  write(badge, t(isReady ? "admin_works" : "admin_tile_loading"));
  badge.dataset.tone = isReady ? "good" : "wait";
  write(number, String(restarts));
  write(at, ended ? ago(ended) : "–");
  write(why, reason || "–");
}
