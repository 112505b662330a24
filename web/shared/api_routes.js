// An OpenAPI description as a list of routes. Pure.

/**
 * @typedef {{ info: { summary?: string }, paths: Record<string, Record<string, any>>, components?: any,
 *   tags?: { name: string }[], "x-sockets"?: { path: string, summary: string, "x-audience": string }[] }} ApiDescription
 * @typedef {{ method: string, path: string, section: string, summary: string, text: string, audience: string,
 *   parts: [string, unknown][] }} ApiOperation
 */

const REFERENCE = "$ref";
// Models name each other; deeper ones are shown by their name.
const MOST_DEPTH = 4;

/**
 * Return the routes in the order of the sections, and the sockets.
 *
 * @param {ApiDescription} description
 * @returns {ApiOperation[]}
 */
export function operationsOf(description) {
  /** @type {ApiOperation[]} */
  const found = [];
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      found.push({
        method: method.toUpperCase(),
        path,
        section: operation.tags?.[0] ?? "",
        summary: operation.summary ?? "",
        text: operation.description ?? "",
        audience: operation["x-audience"] ?? "",
        parts: partsOf(operation),
      });
    }
  }
  for (const { path, summary, "x-audience": audience } of description["x-sockets"] ?? []) {
    found.push({ method: "WebSocket", path, section: "Sockets", summary, text: summary, audience, parts: [] });
  }
  const order = (description.tags ?? []).map(({ name }) => name);
  return found.sort((one, other) => order.indexOf(one.section) - order.indexOf(other.section));
}

/**
 * @param {any} operation
 * @returns {[string, unknown][]}
 */
function partsOf(operation) {
  /** @type {[string, unknown][]} */
  const parts = [];
  const parameters = Object.fromEntries(
    (operation.parameters ?? []).map((/** @type {any} */ each) => [`${each.name} (${each.in})`, each.schema]),
  );
  if (Object.keys(parameters).length) parts.push(["Parameters", parameters]);
  for (const [type, { schema }] of Object.entries(operation.requestBody?.content ?? {})) parts.push([`Body, ${type}`, schema]);
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    const schema = response.content?.["application/json"]?.schema;
    if (schema && status !== "default") parts.push([`Answer ${status}`, schema]);
  }
  return parts;
}

/**
 * Return a schema with its models in place of their references, without titles.
 *
 * @param {any} schema
 * @param {ApiDescription} description
 * @param {number} [depth]
 * @returns {any}
 */
export function withoutReferences(schema, description, depth = 0) {
  if (Array.isArray(schema)) return schema.map((each) => withoutReferences(each, description, depth));
  if (schema === null || typeof schema !== "object") return schema;
  if (typeof schema[REFERENCE] === "string") {
    const name = schema[REFERENCE].replace(/^.*\//, "");
    const model = description.components?.schemas?.[name];
    return model && depth < MOST_DEPTH ? withoutReferences(model, description, depth + 1) : name;
  }
  // Titles are made of the names of fields.
  const facts = Object.entries(schema).filter(([key, value]) => key !== "title" || typeof value !== "string");
  return Object.fromEntries(facts.map(([key, value]) => [key, withoutReferences(value, description, depth)]));
}
