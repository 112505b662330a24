// Lists that are refreshed while a person works with them.

/**
 * Show items as children that keep their nodes: a node that has the focus, or plays, is not made anew.
 *
 * @template Item
 * @param {HTMLElement} parent
 * @param {Item[]} items
 * @param {keyof Item} name field that identifies an item
 * @param {(item: Item) => HTMLElement} make
 * @param {(node: HTMLElement, item: Item) => void} update
 */
export function keyed(parent, items, name, make, update) {
  /** @type {Map<string | undefined, HTMLElement>} */
  const left = new Map(childrenOf(parent).map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const key = String(item[name]);
    const node = left.get(key) ?? make(item);
    left.delete(key);
    node.dataset.key = key;
    update(node, item);
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  for (const gone of left.values()) {
    // A user of the keyboard continues from the heading, not from the top of the page.
    if (gone.contains(document.activeElement)) parent.closest("section")?.querySelector("h2")?.focus();
    gone.remove();
  }
}

/**
 * @param {Element} parent
 * @returns {HTMLElement[]}
 */
function childrenOf(parent) {
  return [...parent.children].filter((child) => child instanceof HTMLElement);
}

/**
 * Return a time in words.
 *
 * @param {number} seconds
 */
export function span(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}
