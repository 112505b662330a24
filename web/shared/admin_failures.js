// Failures on the operator's page: engines whose fallback answers, what failed how often, restarts and stalls.

import { ago, cell, count, rowHead } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { keyed, span } from "./lists.js";

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

/** @type {Record<Circuit["state"], [string, string]>} */
const STATES = { closed: ["in use", "good"], open: ["not used", "bad"], probing: ["being tried", "wait"] };
/** @type {Record<string, string>} */
const KINDS = { error: "error", failover: "failover", recovered: "works again", degraded: "recording degraded" };

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
  write(parts.none, `No call has reported a failure since the server started, ${ago(since)} ago.`);
  parts.stalls.hidden = !stalls;
  if (!stalls) return;
  const last = stalls.last_at ? `, the newest of ${stalls.last_ms} ms ${ago(stalls.last_at)} ago` : "";
  const longest = stalls.count ? `, the longest of ${stalls.longest_ms} ms${last}` : "";
  write(parts.stalls, `The event loop has had ${count(stalls.count, "stall")} of ${stalls.over_ms} ms or more${longest}.`);
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
  const [text, tone] = STATES[state];
  write(badge, text);
  badge.dataset.tone = tone;
  write(row.children[3], state === "open" ? `in ${span(retryMs / 1_000)}` : "–");
}

/** @param {FailureCount} failure */
function makeFailure({ kind, stage, engine, successor }) {
  const made = element("tr");
  const who = successor ? `${engine} → ${successor}` : engine;
  made.append(
    rowHead(KINDS[kind] ?? kind), element("td", "", stage), element("td", "", who || "–"), element("td", "number"),
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
  write(at, `${ago(last)} ago`);
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
  write(badge, isReady ? "works" : "loading");
  badge.dataset.tone = isReady ? "good" : "wait";
  write(number, String(restarts));
  write(at, ended ? `${ago(ended)} ago` : "–");
  write(why, reason || "–");
}
