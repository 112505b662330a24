// Fragment of the address of a conversation: which part of the page it opens.

/**
 * Open the part of the page that the address names: `#recordings` or `#share`.
 *
 * @param {{ recordings: HTMLDetailsElement, share: HTMLElement }} parts `share` opens the dialog of links
 */
export function openFragment({ recordings, share }) {
  const name = location.hash.slice(1);
  // The fold is shown once there is a recording.
  if (name === "recordings") recordings.open = true;
  if (name === "share") share.click();
}
