// Dialog of the links by which others read a session: make one for a time, copy it, see which exist, revoke one.

import { element, part, showNotice } from "./element.js";
import { messageOf } from "./guards.js";
import { dateAndTime, t } from "./language.js";

/** @import { ShareLink } from "../types/server.js" */
/** @import { Key } from "./language.js" */
/** @import { SessionApi } from "./session_api.js" */

/** @type {Record<ShareLink["state"], Key>} */
const STATES = { open: "link_open", expired: "link_expired", revoked: "link_revoked" };

export class Shares {
  #api;
  #dialog;
  #made;
  #link;
  #list;
  #notice;

  /**
   * @param {SessionApi} api
   * @param {HTMLButtonElement} button opens the dialog
   * @param {HTMLDialogElement} dialog
   */
  constructor(api, button, dialog) {
    this.#api = api;
    this.#dialog = dialog;
    this.#made = part("share-made", HTMLElement, dialog);
    this.#link = part("share-link", HTMLInputElement, dialog);
    this.#list = part("share-list", HTMLOListElement, dialog);
    this.#notice = part("share-notice", HTMLParagraphElement, dialog);
    const time = part("share-time", HTMLSelectElement, dialog);
    button.addEventListener("click", () => this.#open());
    part("share-form", HTMLFormElement, dialog).addEventListener("submit", (event) => {
      event.preventDefault();
      this.#make(Number(time.value));
    });
    part("share-copy", HTMLButtonElement, dialog).addEventListener("click", () => this.#copy());
    part("share-close", HTMLButtonElement, dialog).addEventListener("click", () => dialog.close());
    // The secret is shown once: it is nowhere else.
    dialog.addEventListener("close", () => {
      this.#link.value = "";
      this.#made.hidden = true;
    });
  }

  #open() {
    showNotice(this.#notice, "");
    this.#dialog.showModal();
    this.#read();
  }

  async #read() {
    try {
      const links = await this.#api.shares();
      this.#list.replaceChildren(...links.map((link) => this.#row(link)));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {number} seconds */
  async #make(seconds) {
    try {
      const made = await this.#api.share(seconds);
      this.#link.value = new URL(made.path, location.href).href;
      this.#made.hidden = false;
      this.#link.select();
      showNotice(this.#notice, t("link_made", { until: dateAndTime(made.until_us) }));
    } catch (error) {
      this.#fail(error);
      return;
    }
    await this.#read();
  }

  async #copy() {
    this.#link.select();
    try {
      // Only https and localhost have a clipboard; elsewhere the link is selected.
      await navigator.clipboard.writeText(this.#link.value);
      showNotice(this.#notice, t("link_copied"));
    } catch {
      showNotice(this.#notice, t("link_selected"));
    }
  }

  /** @param {ShareLink} link */
  #row(link) {
    const row = element("li");
    row.dataset.state = link.state;
    const end = link.revoked_us ?? link.until_us;
    row.append(element("span", "", t(STATES[link.state], { made: dateAndTime(link.created_us), end: dateAndTime(end) })));
    if (link.state === "open") {
      const button = element("button", "bad", t("revoke"));
      button.type = "button";
      button.ariaLabel = t("revoke_link", { made: dateAndTime(link.created_us) });
      button.addEventListener("click", () => this.#revoke(link));
      row.append(button);
    }
    return row;
  }

  /** @param {ShareLink} link */
  async #revoke(link) {
    try {
      await this.#api.revokeShare(link.id);
      if (this.#link.value.includes(link.id)) this.#made.hidden = true;
      showNotice(this.#notice, t("link_was_revoked"));
    } catch (error) {
      this.#fail(error);
    }
    await this.#read();
  }

  /** @param {unknown} error */
  #fail(error) {
    showNotice(this.#notice, messageOf(error), { bad: true });
  }
}
