// Strings of the pages of operators, which the pages of callers do not load, in the language of the page.

import * as admin from "./admin_strings.js";
import { addStrings, chooseLanguage, dateAndTime, locale, t, tIfKnown, translate, worded } from "./language.js";
import * as operator from "./operator_strings.js";

/** @import { Key } from "./language.js" */

addStrings(operator);
addStrings(admin);

export { chooseLanguage, dateAndTime, locale, t, tIfKnown, translate, worded };

/**
 * Return a number of things, in words.
 *
 * @param {number} number
 * @param {Key} one
 * @param {Key} many has the number as {count}
 */
export function counted(number, one, many) {
  return number === 1 ? t(one) : t(many, { count: number.toLocaleString(locale()) });
}
