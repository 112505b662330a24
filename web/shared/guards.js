// Checks that turn a value of an uncertain type into one that can be used.

/**
 * Return a value that is always present at this point of the code.
 *
 * @template T
 * @param {T | null | undefined} value
 * @param {string} name for the error
 * @returns {T}
 */
export function required(value, name) {
  if (value === null || value === undefined) throw new TypeError(`${name} is missing`);
  return value;
}

/**
 * Return the text of whatever was thrown.
 *
 * @param {unknown} error
 */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Return the class name of whatever was thrown, as the browser reports it.
 *
 * @param {unknown} error
 */
export function nameOf(error) {
  return error instanceof Error ? error.name : typeof error;
}
