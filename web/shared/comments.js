// Comments on a session: a mark for each at its place on the waveform of a recorded call, a list, and a line to write one. What was
// typed is only ever set as text content.

import { clockOf } from "./clock_text.js";
import { element, part, showNotice } from "./element.js";
import { messageOf } from "./guards.js";
import { dateAndTime, t } from "./language.js";

/** @import { RecordingDetail, SessionComment } from "../types/server.js" */
/** @import { SessionApi } from "./session_api.js" */

// Marks nearer than a finger's width are one mark.
const MARK_PX = 26;
const NAME_KEY = "parley.comment_name";

/** @typedef {{ at_ms: number, comments: SessionComment[] }} Mark */

/**
 * Return the comments on a recorded call as marks, in order of time; those that are nearer than a distance share one.
 *
 * @param {SessionComment[]} comments in order of time
 * @param {{ began_us: number, duration_ms: number }} call
 * @param {number} apart_ms least distance of two marks
 * @returns {Mark[]}
 */
export function marksOf(comments, call, apart_ms) {
  /** @type {Mark[]} */
  const marks = [];
  for (const comment of comments) {
    const at_ms = (comment.at_us - call.began_us) / 1_000;
    if (at_ms < 0 || at_ms > call.duration_ms) continue;
    const last = marks.at(-1);
    if (last && at_ms - last.at_ms < apart_ms) last.comments.push(comment);
    else marks.push({ at_ms, comments: [comment] });
  }
  return marks;
}

export class Comments {
  #api;
  #seek;
  #section;
  #list;
  #marks;
  #wave;
  #form;
  #text;
  #name;
  #at;
  #notice;
  /** @type {SessionComment[]} in order of time */
  #comments = [];
  /** @type {RecordingDetail | null} */
  #call = null;
  #at_ms = 0;

  /**
   * @param {SessionApi} api
   * @param {HTMLElement} root contains the section of the comments, and the marks under the waveform
   * @param {(at_ms: number) => void} seek moves the player to a time of the call
   */
  constructor(api, root, seek) {
    this.#api = api;
    this.#seek = seek;
    this.#section = part("comments", HTMLElement, root);
    this.#list = part("comment-list", HTMLOListElement, root);
    this.#marks = part("comment-marks", HTMLOListElement, root);
    this.#wave = part("wave", HTMLElement, root);
    this.#form = part("comment-form", HTMLFormElement, root);
    this.#text = part("comment-text", HTMLTextAreaElement, root);
    this.#name = part("comment-name", HTMLInputElement, root);
    this.#at = part("comment-at", HTMLElement, root);
    this.#notice = part("comments-notice", HTMLParagraphElement, root);
    this.#name.value = localStorage.getItem(NAME_KEY) ?? "";
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    new ResizeObserver(() => this.draw()).observe(this.#wave);
  }

  /**
   * Show the comments on a call that was chosen.
   *
   * @param {RecordingDetail} call
   */
  async show(call) {
    this.#call = call;
    this.move(0);
    try {
      this.#comments = await this.#api.comments();
    } catch (error) {
      showNotice(this.#notice, messageOf(error), { bad: true });
      return;
    }
    this.#section.hidden = false;
    this.draw();
  }

  /** @param {number} at_ms place of the playback, to which a new comment belongs */
  move(at_ms) {
    this.#at_ms = at_ms;
    this.#at.textContent = clockOf(at_ms);
  }

  async #add() {
    const text = this.#text.value.trim();
    if (!text || !this.#call) return;
    const at_us = this.#call.began_us + Math.round(this.#at_ms * 1_000);
    try {
      const made = await this.#api.comment({ at_us, text, name: this.#name.value.trim() });
      localStorage.setItem(NAME_KEY, made.name);
      this.#comments = [...this.#comments, made].sort((one, other) => one.at_us - other.at_us);
      this.#text.value = "";
      showNotice(this.#notice, t("comment_added", { at: clockOf(this.#at_ms) }));
    } catch (error) {
      showNotice(this.#notice, messageOf(error), { bad: true });
    }
    this.draw();
  }

  /** @param {SessionComment} comment */
  async #remove(comment) {
    try {
      await this.#api.removeComment(comment.id);
      this.#comments = this.#comments.filter((each) => each !== comment);
      showNotice(this.#notice, t("comment_deleted"));
    } catch (error) {
      showNotice(this.#notice, messageOf(error), { bad: true });
    }
    this.draw();
    this.#text.focus();
  }

  /** Show the comments again: the language or the width has changed. */
  draw() {
    const call = this.#call;
    const width = this.#wave.clientWidth;
    if (!call || !width) return;
    const marks = marksOf(this.#comments, call, (MARK_PX * call.duration_ms) / width);
    this.#marks.hidden = !marks.length;
    this.#marks.replaceChildren(...marks.map((mark) => this.#mark(mark, call)));
    this.#list.replaceChildren(...this.#comments.map((comment) => this.#row(comment, call)));
  }

  /**
   * @param {Mark} mark
   * @param {RecordingDetail} call
   */
  #mark({ at_ms, comments }, call) {
    const item = element("li");
    item.style.insetInlineStart = `${((100 * at_ms) / Math.max(call.duration_ms, 1)).toFixed(2)}%`;
    const button = element("button", "", comments.length > 1 ? String(comments.length) : "");
    button.type = "button";
    button.title = comments.map(({ text }) => text).join("\n");
    const at = clockOf(at_ms);
    const isOne = comments.length === 1;
    button.ariaLabel = isOne ? t("comment_by", { name: nameOf(comments[0]), at }) : t("comments_at", { count: comments.length, at });
    button.addEventListener("click", () => this.#seek(at_ms));
    item.append(button);
    return item;
  }

  /**
   * @param {SessionComment} comment
   * @param {RecordingDetail} call
   */
  #row(comment, call) {
    const row = element("li");
    row.dataset.role = "comment";
    const at_ms = (comment.at_us - call.began_us) / 1_000;
    const head = element("p", "head");
    if (at_ms >= 0 && at_ms <= call.duration_ms) {
      const button = element("button", "", clockOf(at_ms));
      button.type = "button";
      button.ariaLabel = t("go_to", { at: clockOf(at_ms) });
      button.addEventListener("click", () => this.#seek(at_ms));
      head.append(button);
    } else {
      head.append(element("span", "elsewhere", t("comment_elsewhere", { date: dateAndTime(comment.at_us) })));
    }
    head.append(element("b", "", nameOf(comment)));
    if (comment.role === "operator") head.append(element("span", "role", t("role_operator")));
    const written = element("time", "", dateAndTime(comment.created_us));
    written.dateTime = new Date(comment.created_us / 1_000).toISOString();
    head.append(written);
    if (comment.may_delete) {
      const remove = element("button", "remove", t("delete"));
      remove.type = "button";
      remove.ariaLabel = t("delete_comment", { name: nameOf(comment), date: dateAndTime(comment.created_us) });
      remove.addEventListener("click", () => this.#remove(comment));
      head.append(remove);
    }
    row.append(head, element("p", "text", comment.text));
    return row;
  }
}

/** @param {SessionComment} comment */
function nameOf(comment) {
  return comment.name || t(comment.role === "operator" ? "the_operator" : "a_reader");
}
