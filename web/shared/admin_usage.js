// Use and cost on the operator's page: of each model, and of the newest calls.

import { ago, cell, rowHead, words } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { keyed, span } from "./lists.js";
import { locale, t } from "./operator_language.js";

/** @import { CallUse, ModelUse, Usage } from "../types/server.js" */

const parts = {
  usageWhat: part("usage-what", HTMLElement),
  models: part("models", HTMLElement),
  modelsTable: part("models-table", HTMLElement),
  calls: part("calls", HTMLElement),
  callsTable: part("calls-table", HTMLElement),
  noUsage: part("no-usage", HTMLElement),
};

/**
 * Show the use and the cost of models and calls.
 *
 * @param {Usage} usage
 */
export function showUsage({ since, currency, models, calls }) {
  const key = currency === null ? "admin_no_prices" : "admin_prices";
  write(parts.usageWhat, t(key, { ago: ago(since), currency: currency ?? "" }));
  keyed(parts.models, models.map((model) => ({ ...model, id: JSON.stringify([model.stage, model.engine, model.model]) })),
    "id", makeModel, updateModel);
  keyed(parts.calls, calls, "call_id", makeCall, updateCall);
  parts.modelsTable.hidden = models.length === 0;
  parts.callsTable.hidden = calls.length === 0;
  parts.noUsage.hidden = models.length + calls.length > 0;
}

/** @param {ModelUse} model */
function makeModel({ engine, model }) {
  const made = element("tr");
  made.append(rowHead(engine), element("td", "", model || "–"), element("td"), cell("td", "number", element("span")));
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {ModelUse} model
 */
function updateModel(row, { amounts, cost, known_cost: known, unpriced }) {
  const [, , used, paid] = row.children;
  write(used, Object.entries(amounts).map(([kind, amount]) => amountOf(kind, amount)).join(", "));
  const price = found("span", HTMLElement, paid);
  write(price, costOf(cost, known));
  price.title = unpriced.length ? t("admin_no_price", { kinds: unpriced.map(words).join(", ") }) : "";
}

/** @param {CallUse} call */
function makeCall({ session_id: session, transport }) {
  const made = element("tr");
  made.append(
    rowHead(element("code", "", session)), element("td", "", transport), element("td", "number"), element("td", "number"), element("td", "number"),
    element("td", "number"),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {CallUse} call
 */
function updateCall(row, { began_at: began, is_over: isOver, turns, last_cost: last, cost, known_cost: known }) {
  const [, , since, count, turn, paid] = row.children;
  write(since, isOver ? ago(began) : t("admin_running", { ago: ago(began) }));
  write(count, String(turns));
  write(turn, costOf(last, null));
  write(paid, costOf(cost, known));
}

/**
 * Return a cost; of one that is not known, the part that is.
 *
 * @type {(cost: string | null, known: string | null) => string}
 */
const costOf = (cost, known) => cost ?? (Number(known) > 0 ? t("admin_not_known_over", { cost: String(known) }) : t("admin_not_known"));

/** @type {(kind: string, amount: number) => string} */
function amountOf(kind, amount) {
  if (kind.endsWith("_ms")) return `${span(amount / 1000)} ${words(kind.slice(0, -3))}`;
  return `${amount.toLocaleString(locale())} ${words(kind)}`;
}
