// Lanes of a recorded call under its waveform, on the same time line: what was perceived, the votes of an engine, and the calls of
// tools. Each lane is a canvas, because a call of an hour has thousands of items; the same items are a list for the keyboard and for
// screen readers, which is filled when it is opened.

import { CALL_LANES, isForLanes, perceivedOf, toolsOf, votesOf } from "./call_facts.js";
import { clockOf } from "./clock_text.js";
import { element } from "./element.js";
import { t, tIfKnown } from "./language.js";

/** @import { Key } from "./language.js" */
/** @import { RecordingDetail, SessionEvent } from "../types/server.js" */
/** @import { LaneItem, LaneName } from "./call_facts.js" */

// The user's choice: open lanes leave the transcript less room.
const OPEN_KEY = "parley.lanes";
const LANE_PX = 20;
// Narrower text says nothing.
const TEXT_PX = 30;
const LIST_ITEMS = 200;
// Older reports are left of the calls of a session for good.
const MOST_EVENTS = 50_000;
// Results and reports may come after the end of a call.
const LATE_US = 60_000_000;
/** @type {Record<string, string>} colours of the page by the kind of an item */
const TONES = { speak: "--accent", backchannel: "--warn", yield: "--bad", failed: "--bad", unknown: "--bad", open: "--warn" };

export class CallLanes {
  #root;
  #seek;
  #whole = element("details");
  #rows = element("div", "call-rows");
  #now = element("span", "now");
  #fold = element("details");
  #list = element("ol");
  #more = element("button");
  #cursor = element("div", "cursor");
  /** @type {SessionEvent[]} */
  #session = [];
  /** @type {RecordingDetail | null} */
  #call = null;
  /** @type {LaneItem[]} in order of time */
  #items = [];
  /** @type {Map<HTMLCanvasElement, LaneItem[]>} */
  #lanes = new Map();
  #at_ms = 0;
  #isDue = false;

  /**
   * @param {HTMLElement} root is filled
   * @param {(at_ms: number) => void} seek moves the player to a time of the call
   */
  constructor(root, seek) {
    this.#root = root;
    this.#seek = seek;
    root.hidden = true;
    this.#whole.dataset.role = "lanes-fold";
    this.#whole.open = localStorage.getItem(OPEN_KEY) !== null;
    this.#whole.addEventListener("toggle", () => {
      if (this.#whole.open) localStorage.setItem(OPEN_KEY, "yes");
      else localStorage.removeItem(OPEN_KEY);
    });
    this.#more.type = "button";
    this.#more.addEventListener("click", () => this.#fill());
    this.#list.tabIndex = 0;
    this.#now.ariaHidden = "true";
    this.#fold.addEventListener("toggle", () => {
      if (this.#fold.open && !this.#list.childElementCount) this.#fill();
    });
    root.append(this.#whole);
    new ResizeObserver(() => this.#paint()).observe(this.#rows);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  /**
   * Take an event of the session; those that no lane shows are ignored.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    if (!isForLanes(event)) return;
    this.#session.push(event);
    if (this.#session.length > MOST_EVENTS) this.#session.splice(0, MOST_EVENTS / 10);
    // What happens in a later call changes nothing here.
    if (!this.#call || this.#isDue || event.event_us > this.#call.began_us + 1_000 * this.#call.duration_ms + LATE_US) return;
    // The past comes in one piece: it is shown once.
    this.#isDue = true;
    setTimeout(() => {
      this.#isDue = false;
      this.draw();
    });
  }

  /** @param {RecordingDetail} call that was chosen */
  show(call) {
    this.#call = call;
    this.#items = [
      ...perceivedOf(this.#session, call),
      ...votesOf(call.events, call.duration_ms),
      ...toolsOf(this.#session, call),
    ].sort((one, other) => one.start_ms - other.start_ms);
    this.#root.hidden = !this.#items.length;
    this.#lanes.clear();
    this.#rows.replaceChildren(this.#cursor);
    for (const [name] of CALL_LANES) {
      const items = this.#items.filter((each) => each.lane === name);
      if (items.length) this.#rows.append(this.#lane(name, items));
    }
    this.#list.replaceChildren();
    this.#fold.replaceChildren(element("summary", "", t("rec_items", { count: this.#items.length })), this.#list, this.#more);
    const summary = element("summary", "", t("rec_lanes"));
    summary.append(this.#now);
    this.#whole.replaceChildren(summary, this.#rows, this.#fold);
    this.#list.ariaLabel = t("rec_items_label");
    if (this.#fold.open) this.#fill();
    this.#paint();
    this.move(this.#at_ms);
  }

  /** Write it again, in the language of the page. */
  draw() {
    if (this.#call) this.show(this.#call);
  }

  /** @param {number} at_ms place of the playback */
  move(at_ms) {
    this.#at_ms = at_ms;
    if (this.#root.hidden) return;
    this.#cursor.style.insetInlineStart = `${(100 * at_ms) / this.#length_ms}%`;
    const text = [...this.#lanes.values()].flatMap((items) => {
      const item = itemAt(items, at_ms, 0);
      return item ? [`${laneTitle(item.lane)}: ${describe(item)}`] : [];
    });
    const shown = text.join(" · ");
    if (this.#now.textContent !== shown) this.#now.textContent = shown;
  }

  get #length_ms() {
    return Math.max(this.#call?.duration_ms ?? 0, 1);
  }

  /**
   * @param {LaneName} name
   * @param {LaneItem[]} items
   */
  #lane(name, items) {
    const row = element("div", "row");
    row.dataset.lane = name;
    const canvas = element("canvas");
    canvas.ariaHidden = "true";
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const per_px_ms = this.#length_ms / Math.max(box.width, 1);
      const at_ms = (event.clientX - box.left) * per_px_ms;
      this.#seek(itemAt(items, at_ms, 4 * per_px_ms)?.start_ms ?? at_ms);
    });
    this.#lanes.set(canvas, items);
    row.append(element("b", "", laneTitle(name)), canvas);
    return row;
  }

  #paint() {
    for (const [canvas, items] of this.#lanes) this.#paintLane(canvas, items);
  }

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {LaneItem[]} items
   */
  #paintLane(canvas, items) {
    const [width, scale, context] = [canvas.clientWidth, window.devicePixelRatio || 1, canvas.getContext("2d")];
    if (!width || !context) return;
    canvas.width = width * scale;
    canvas.height = LANE_PX * scale;
    context.scale(scale, scale);
    const style = getComputedStyle(canvas);
    /** @type {(name: string) => string} */
    const tone = (name) => style.getPropertyValue(name).trim();
    context.font = `11px ${style.fontFamily}`;
    context.textBaseline = "middle";
    for (const item of items) {
      if (item.kind === "listen") continue; // what the bot does when it does nothing
      const left = (item.start_ms / this.#length_ms) * width;
      const wide = Math.max(1.5, ((item.end_ms - item.start_ms) / this.#length_ms) * width);
      context.fillStyle = tone("--accent-soft");
      context.fillRect(left, 0, wide, LANE_PX);
      context.fillStyle = tone(TONES[item.kind] ?? "--ink-faint");
      context.fillRect(left, LANE_PX - 3, wide, 3);
      if (wide < TEXT_PX) continue;
      context.save();
      context.beginPath();
      context.rect(left, 0, wide, LANE_PX);
      context.clip();
      context.fillStyle = tone("--ink");
      context.fillText(describe(item), left + 3, LANE_PX / 2 - 1);
      context.restore();
    }
  }

  /** Add the next items to the list. */
  #fill() {
    const shown = this.#list.childElementCount;
    const next = this.#items.slice(shown, shown + LIST_ITEMS);
    this.#list.append(...next.map((item) => this.#item(item)));
    this.#more.hidden = shown + next.length >= this.#items.length;
    this.#more.textContent = t("rec_more");
  }

  /** @param {LaneItem} item */
  #item(item) {
    const row = element("li");
    const button = element("button", "", clockOf(item.start_ms));
    button.type = "button";
    button.addEventListener("click", () => this.#seek(item.start_ms));
    row.append(button, ` ${laneTitle(item.lane)}: ${describe(item)}`);
    return row;
  }
}

/**
 * Return the last item that is on at a time, or nearly.
 *
 * @param {LaneItem[]} items in order of time
 * @param {number} at_ms
 * @param {number} near_ms
 */
export function itemAt(items, at_ms, near_ms) {
  return items.findLast((each) => each.start_ms <= at_ms + near_ms && each.end_ms >= at_ms - near_ms);
}

/** @param {LaneName} name */
function laneTitle(name) {
  return t(/** @type {Key} */ (`rec_lane_${name}`));
}

/** @param {LaneItem} item */
function describe(item) {
  if (item.lane === "vote") return tIfKnown(`rec_vote_${item.kind}`, item.kind);
  if (item.lane !== "tool") return item.text;
  if (item.kind === "unnamed") return t("rec_tools_called");
  if (item.kind === "open") return `${item.text}, ${t("rec_tool_open")}`;
  const outcome = tIfKnown(`rec_tool_${item.kind}`, item.kind);
  return `${item.text}, ${Math.round(item.end_ms - item.start_ms)} ms, ${outcome}`;
}
