// Live calls on the operator's page: each can be listened to while it lasts, one at a time, and ended.

import { callAudioPath } from "./admin_api.js";
import { element, part, write } from "./element.js";
import { keyed, span } from "./lists.js";
import { t } from "./operator_language.js";
import { transportName } from "./transport_names.js";

/** @import { LiveCall, LiveCallList } from "../types/server.js" */

const parts = {
  live: part("live", HTMLElement),
  liveTable: part("live-table", HTMLElement),
  listenWhat: part("listen-what", HTMLElement),
  noLive: part("no-live", HTMLElement),
};

/**
 * @typedef {object} LiveCallActions
 * @property {(text: string) => void} say shows a notice
 * @property {(call: LiveCall) => void} end ends a call
 */

export class LiveCalls {
  #actions;
  /** Player of the call that is listened to; it plays nothing else. */
  #player = new Audio();
  #heard = "";
  #canListen = false;

  /** @param {LiveCallActions} actions */
  constructor(actions) {
    this.#actions = actions;
    // The answer has no end but that of its call.
    this.#player.addEventListener("ended", () => this.#onEnd(t("admin_call_over")));
    this.#player.addEventListener("error", () => this.#onEnd(t("admin_listening_over")));
    // By a key of the keyboard, for example: a paused player would go on with what was said meanwhile.
    this.#player.addEventListener("pause", () => this.#player.ended || this.stop());
  }

  /** Listen to no call any more. */
  stop() {
    if (!this.#heard) return;
    this.#heard = "";
    this.#player.removeAttribute("src");
    this.#player.load();
    this.#name();
  }

  /** @param {LiveCallList} list */
  show({ can_listen: canListen, calls }) {
    this.#canListen = canListen;
    keyed(parts.live, calls, "call_id", (call) => this.#make(call), (row, call) => this.#update(row, call));
    parts.liveTable.hidden = calls.length === 0;
    parts.noLive.hidden = calls.length > 0;
    parts.listenWhat.hidden = !canListen || !calls.some((call) => call.has_audio);
  }

  /** @param {LiveCall} call */
  #make(call) {
    const made = element("tr");
    const head = element("th");
    head.scope = "row";
    const link = element("a", "", call.session_id.slice(0, 8));
    link.href = `/s/${call.session_id}`;
    head.append(link);
    const actions = element("td");
    if (this.#canListen && call.has_audio) {
      const listen = element("button", "quiet");
      listen.type = "button";
      listen.dataset.role = "listen";
      listen.addEventListener("click", () => this.#toggle(call.call_id));
      actions.append(listen);
    }
    const end = element("button", "quiet", t("admin_end"));
    end.type = "button";
    end.dataset.role = "end";
    end.addEventListener("click", () => this.#actions.end(call));
    actions.append(end);
    made.append(
      head, element("td", "", transportName(call.transport)), element("td", "", call.mode), element("td", "number"),
      element("td", "number"), actions,
    );
    return made;
  }

  /**
   * @param {HTMLElement} row
   * @param {LiveCall} call
   */
  #update(row, { call_id: id, began_at: began, listeners }) {
    const [, , , since, count] = row.children;
    write(since, t("admin_ago", { time: span((Date.now() - Date.parse(began)) / 1_000) }));
    write(count, String(listeners));
    const listen = row.querySelector('[data-role="listen"]');
    if (listen instanceof HTMLElement) write(listen, t(id === this.#heard ? "admin_stop_listening" : "admin_listen"));
  }

  /** @param {string} id */
  #toggle(id) {
    const begins = id !== this.#heard;
    this.stop();
    if (!begins) return;
    this.#heard = id;
    this.#player.src = callAudioPath(id);
    // A refusal of the server is an error of the player; the next click on "Listen" breaks this one off.
    this.#player.play().catch((error) => error.name === "NotAllowedError" && this.#onEnd(t("admin_no_player")));
    this.#name();
  }

  /** @param {string} why */
  #onEnd(why) {
    // Emptying the player is an error of its own.
    if (!this.#heard) return;
    this.stop();
    this.#actions.say(why);
  }

  /** Name each button after what it does now. */
  #name() {
    for (const row of parts.live.children) {
      const listen = row.querySelector('[data-role="listen"]');
      if (!(row instanceof HTMLElement) || !(listen instanceof HTMLElement)) continue;
      write(listen, t(row.dataset.key === this.#heard ? "admin_stop_listening" : "admin_listen"));
    }
  }
}
