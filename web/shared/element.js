// Finding and making parts of a page. Text is only ever set as textContent.

/**
 * Return the part of the page that has a role.
 *
 * @template {Element} T
 * @param {string} role value of its `data-role`
 * @param {new () => T} type its class
 * @param {ParentNode} [root] the part of the page that contains it
 * @returns {T}
 */
export function part(role, type, root = document) {
  return found(`[data-role="${role}"]`, type, root);
}

/**
 * Return the first element that matches a selector. A page that lacks it cannot work.
 *
 * @template {Element} T
 * @param {string} selector
 * @param {new () => T} type its class
 * @param {ParentNode} root
 * @returns {T}
 */
export function found(selector, type, root) {
  const node = root.querySelector(selector);
  if (!(node instanceof type)) throw new TypeError(`the page has no ${type.name} that matches ${selector}`);
  return node;
}

/**
 * Make an element.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * Set a text that is announced to screen readers: only when it changes.
 *
 * @param {Node} node
 * @param {string} text
 */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Show one line to the user; an empty text removes it.
 *
 * @param {HTMLElement} node
 * @param {string} text
 * @param {{ bad?: boolean }} [options]
 */
export function showNotice(node, text, { bad = false } = {}) {
  write(node, text);
  node.hidden = !text;
  node.classList.toggle("bad", bad);
}
