// Making parts of a page. Text is only ever set as textContent.

export const part = (role) => document.querySelector(`[data-role="${role}"]`);

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Sets a text that is announced to screen readers: only when it changes. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** One line for the person; empty takes it away. */
export function showNotice(node, text, { bad = false } = {}) {
  write(node, text);
  node.hidden = !text;
  node.classList.toggle("bad", bad);
}
