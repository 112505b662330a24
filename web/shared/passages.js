// Passages of the documents that an answer rests on, as a fold below its bubble.

import { element } from "./element.js";
import { t, worded } from "./language.js";

/** @import { CitedPassage } from "../types/server.js" */

/**
 * Return the fold with the passages of an answer; nothing where it rests on none.
 *
 * @param {CitedPassage[] | undefined} passages
 * @returns {HTMLElement[]}
 */
export function citing(passages) {
  // A session that was imported may hold anything.
  const cited = Array.isArray(passages) ? passages.filter((passage) => typeof passage?.document === "string") : [];
  if (!cited.length) return [];
  const fold = element("details", "chip passages");
  fold.dataset.role = "passages";
  fold.append(worded(element("summary"), () => t(cited.length === 1 ? "passage" : "passages", { count: cited.length })));
  const list = element("ol");
  for (const { document: name, heading, number } of cited) {
    const item = element("li", "", heading && heading !== name ? `${name}: ${heading}` : name);
    if (number) item.title = t("passage_number", { number });
    list.append(item);
  }
  fold.append(list);
  return [fold];
}
