// Apps on the operator's page: each surface of the server is open, or closed for new conversations.

import * as api from "./admin_api.js";
import { element, found, part } from "./element.js";
import { keyed } from "./lists.js";
import { t } from "./operator_language.js";

/** @import { App } from "../types/server.js" */
/** @import { CardActions } from "./admin_card.js" */

const list = part("apps", HTMLElement);

export class AppsCard {
  #actions;

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /** @param {App[]} apps */
  show(apps) {
    keyed(list, apps, "app_id", (app) => this.#app(app), updateApp);
  }

  /** @param {App} app */
  #app({ app_id: id, name, route }) {
    const made = element("li");
    const label = element("label", "", name);
    label.append(element("code", "", route));
    const button = element("button", "switch");
    button.type = "button";
    button.id = `app-${id}`;
    button.dataset.role = "switch";
    label.htmlFor = button.id;
    button.setAttribute("role", "switch");
    button.addEventListener("click", () => this.#actions.run(async () => {
      const enabled = button.getAttribute("aria-checked") !== "true";
      button.setAttribute("aria-busy", "true");
      try {
        const app = await api.switchApp(id, enabled);
        updateApp(made, app);
        this.#actions.say(t(app.enabled ? "admin_app_open" : "admin_app_closed", { name }));
      } finally {
        button.removeAttribute("aria-busy");
      }
      await this.#actions.lookAgain();
    }));
    made.append(label, button);
    return made;
  }
}

/**
 * @param {HTMLElement} node
 * @param {App} app
 */
function updateApp(node, { enabled }) {
  found("button", HTMLElement, node).setAttribute("aria-checked", String(enabled));
}
