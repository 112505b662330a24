// Recorded calls of a session: play one, see both sides over time, read along, download. The list is read when the page opens and
// when a recording ends; one call is read when it is chosen.

import { withImages } from "./call_facts.js";
import { CallMoments } from "./call_moments.js";
import { clockOf } from "./clock_text.js";
import { element, part, showNotice } from "./element.js";
import { messageOf } from "./guards.js";
import { dateAndTime, t } from "./language.js";
import { heardLater } from "./latency.js";
import { transportName } from "./transport_names.js";
import { Waveform, captionsOf } from "./waveform.js";

/** @import { RecordingDetail, RecordingEvent, RecordingSummary, SessionEvent } from "../types/server.js" */
/** @import { SessionApi } from "./session_api.js" */
/** @import { SharedApi } from "./shared_api.js" */
/** @import { TurnImage } from "./call_facts.js" */
/** @import { Caption } from "./waveform.js" */

// The stereo file is made when the call is over, a moment after the session has heard of its end.
const MADE_LOOKS = 10;
const MADE_MS = 1_500;

/**
 * @typedef {object} RecordingsHandlers
 * @property {(call: RecordingDetail) => void} [shown] a call was chosen
 * @property {(at_ms: number) => void} [moved] the playback is at another place
 */

export class Recordings {
  #api;
  #on;
  #fold;
  #list;
  #player;
  #audio;
  #waveform;
  #moments;
  #lines;
  #picture;
  #wav;
  #film;
  #clientReplay;
  #notice;
  /** @type {RecordingSummary[]} */
  #calls = [];
  #chosen = "";
  /** @type {(Caption & { images: TurnImage[] })[]} */
  #captions = [];
  #current = -1; // place of the line that is played
  /** @type {number[]} times of the camera's pictures */
  #pictures = [];
  #looks = MADE_LOOKS;

  /**
   * @param {SessionApi | SharedApi} api
   * @param {HTMLDetailsElement} fold contains the list and the player; hidden while nothing is recorded
   * @param {RecordingsHandlers} [on]
   */
  constructor(api, fold, on = {}) {
    this.#api = api;
    this.#on = on;
    this.#fold = fold;
    this.#list = part("recorded", HTMLOListElement, fold);
    this.#player = part("player", HTMLElement, fold);
    this.#audio = part("replay", HTMLAudioElement, fold);
    this.#lines = part("captions", HTMLOListElement, fold);
    this.#picture = part("camera", HTMLImageElement, fold);
    this.#wav = part("wav", HTMLAnchorElement, fold);
    this.#film = part("film", HTMLAnchorElement, fold);
    this.#clientReplay = part("client-replay", HTMLAnchorElement, fold);
    this.#notice = part("recordings-notice", HTMLParagraphElement, fold);
    this.#waveform = new Waveform(part("waveform", HTMLCanvasElement, fold), (at_ms) => this.seek(at_ms));
    this.#moments = new CallMoments(part("call-moments", HTMLElement, fold), (at_ms) => this.seek(at_ms));
    part("zip", HTMLAnchorElement, fold).href = api.recordingsZipPath;
    this.#audio.addEventListener("timeupdate", () => this.#onTime());
    this.#audio.addEventListener("seeking", () => this.#onTime());
    this.#audio.addEventListener("error", () => this.#fail(t("replay_failed")));
    fold.addEventListener("toggle", () => this.#chooseLast());
    this.#read();
  }

  /**
   * Take a new event of the session: the end of a recording adds a call.
   *
   * @param {SessionEvent} event
   */
  take(event) {
    if (event.kind !== "recording" || event.payload.state !== "ended") return;
    this.#looks = MADE_LOOKS;
    this.#read();
  }

  async #read() {
    try {
      this.#calls = await this.#api.recordings();
    } catch (error) {
      // Without recordings the page is whole; where some were shown, they stay.
      if (this.#calls.length) this.#fail(messageOf(error));
      return;
    }
    this.#fold.hidden = !this.#calls.length;
    this.#showList();
    if (this.#looks > 0 && this.#calls.some(isBeingMade)) {
      this.#looks -= 1;
      setTimeout(() => this.#read(), MADE_MS);
    }
    this.#chooseLast();
    const chosen = this.#calls.find((call) => call.call_id === this.#chosen);
    this.#offer(chosen);
  }

  /**
   * Offer the files that not every call has.
   *
   * @param {RecordingSummary | undefined} call that is chosen
   */
  #offer(call) {
    this.#film.hidden = !call?.has_film;
    this.#clientReplay.hidden = !call?.client_replay;
    if (!call) return;
    this.#film.href = this.#api.filmPath(call.call_id);
    this.#film.download = `${call.call_id}.mp4`;
    this.#clientReplay.href = this.#api.clientReplayPath(call.call_id);
    this.#clientReplay.download = `${call.call_id}-${call.client_replay}`;
  }

  /** Show the list and the call that is chosen, in the language of the page. */
  show() {
    this.#showList();
    this.#moments.draw();
    this.#showLines();
    this.#onTime();
  }

  #showList() {
    this.#list.replaceChildren(...this.#calls.map((call) => this.#row(call)));
  }

  #showLines() {
    this.#lines.replaceChildren(...this.#captions.map((caption) => this.#line(caption)));
    this.#current = -1;
  }

  /** @param {RecordingSummary} call */
  #row(call) {
    const row = element("li");
    const button = element("button", "", describe(call));
    button.type = "button";
    button.disabled = !call.has_replay;
    button.ariaPressed = String(call.call_id === this.#chosen);
    button.addEventListener("click", () => this.#choose(call));
    row.append(button);
    if (call.problem) row.append(element("small", "", call.problem));
    else if (!call.has_replay) row.append(element("small", "", call.is_over ? this.#made() : t("call_not_over")));
    if (call.lost_ms) row.append(element("small", "", t("lost_seconds", { count: (call.lost_ms / 1_000).toFixed(1) })));
    return row;
  }

  /** Return what is said about a call that is over and has no stereo file. */
  #made() {
    return t(this.#looks > 0 ? "being_made" : "no_stereo");
  }

  /** Show the newest call once it can be played, where the fold is open and none was chosen. */
  #chooseLast() {
    const last = this.#calls.at(-1);
    if (this.#fold.open && !this.#chosen && last?.has_replay) this.#choose(last);
  }

  /** @param {RecordingSummary} call */
  async #choose(call) {
    this.#chosen = call.call_id;
    this.#list.querySelectorAll("button").forEach((button, place) => {
      button.ariaPressed = String(this.#calls[place]?.call_id === call.call_id);
    });
    try {
      const detail = await this.#api.recording(call.call_id);
      if (this.#chosen !== call.call_id) return;
      showNotice(this.#notice, "");
      this.#captions = withImages(captionsOf(detail.events), detail.images);
      this.#pictures = detail.pictures;
      this.#showLines();
      this.#player.hidden = false;
      this.#audio.src = this.#wav.href = this.#api.replayPath(call.call_id);
      this.#wav.download = `${call.call_id}.wav`;
      this.#offer(this.#calls.find((each) => each.call_id === call.call_id));
      this.#waveform.show(detail);
      this.#moments.show(detail);
      this.#on.shown?.(detail);
      this.#onTime();
    } catch (error) {
      this.#fail(messageOf(error));
    }
  }

  /** @param {Caption & { images: TurnImage[] }} caption */
  #line(caption) {
    const line = element("li", caption.side);
    const button = element("button", "", clockOf(caption.at_ms));
    button.type = "button";
    button.ariaLabel = t("play_from", { at: clockOf(caption.at_ms) });
    button.addEventListener("click", () => {
      this.seek(caption.at_ms);
      this.#audio.play().catch((error) => this.#fail(messageOf(error)));
    });
    const text = element("p", "", caption.text);
    if (caption.unheard) text.append(" ", element("s", "", caption.unheard));
    line.append(button, text);
    if (caption.latency_ms !== null) {
      const latency = element("small", "latency", `${caption.latency_ms} ms`);
      latency.title = t("latency_title");
      line.append(latency);
    }
    const heard = caption.heard && heardOf(caption.heard);
    if (heard) line.append(heard);
    if (caption.images.length) line.append(this.#images(caption.images));
    return line;
  }

  /** @param {TurnImage[]} images of one turn */
  #images(images) {
    const shown = element("span", "images");
    for (const [place, image] of images.entries()) {
      const link = element("a");
      link.href = this.#api.imagePath(this.#chosen, image.name);
      link.target = "_blank";
      const picture = element("img");
      picture.loading = "lazy";
      picture.alt = t("rec_image", { number: place + 1, count: images.length });
      picture.src = link.href;
      link.append(picture);
      shown.append(link);
    }
    return shown;
  }

  /**
   * Move the playback of the chosen call.
   *
   * @param {number} at_ms
   */
  seek(at_ms) {
    this.#audio.currentTime = at_ms / 1_000;
  }

  #onTime() {
    const at_ms = this.#audio.currentTime * 1_000;
    this.#waveform.move(at_ms);
    this.#on.moved?.(at_ms);
    this.#mark(this.#captions.findLastIndex((caption) => caption.at_ms <= at_ms + 1));
    const shown = this.#pictures.findLast((each) => each <= at_ms + 1);
    this.#picture.hidden = shown === undefined;
    if (shown !== undefined) {
      const path = this.#api.framePath(this.#chosen, shown);
      if (!this.#picture.src.endsWith(path)) this.#picture.src = path;
    }
  }

  /**
   * Mark the line that is played; a call of an hour has a thousand, and only the two that change are touched.
   *
   * @param {number} place
   */
  #mark(place) {
    if (place === this.#current) return;
    const [before, line] = [this.#lines.children[this.#current], this.#lines.children[place]];
    if (before) before.ariaCurrent = null;
    this.#current = place;
    if (!line) return;
    line.ariaCurrent = "true";
    if (!this.#audio.paused) line.scrollIntoView({ block: "nearest" });
  }

  /** @param {string} text */
  #fail(text) {
    showNotice(this.#notice, text, { bad: true });
  }
}

/**
 * Return what the caller's page measured of an answer, with the parts of the server's share.
 *
 * @param {RecordingEvent} event LatencyHeard
 */
function heardOf({ heard_ms, server_ms, round_trip_ms = 0, jitter_buffer_ms = 0, output_ms = 0, stages_ms = [] }) {
  if (heard_ms === undefined || server_ms === undefined) return null;
  const fold = element("details", "heard");
  fold.dataset.role = "heard";
  fold.append(
    element("summary", "", t("heard_after", { ms: heard_ms })),
    element("p", "", heardLater({ heard_ms, round_trip_ms, jitter_buffer_ms, output_ms }, server_ms)),
    element("p", "", stages_ms.map(([name, ms]) => `${name.replaceAll("_", " ")} ${Math.round(ms)} ms`).join(", ")),
  );
  return fold;
}

/**
 * Return true while a file of a call is still to come.
 *
 * @param {RecordingSummary} call
 */
function isBeingMade(call) {
  return call.is_over && !call.problem && (!call.has_replay || (call.pictures > 0 && !call.has_film));
}

/** @param {RecordingSummary} call */
function describe(call) {
  if (call.problem) return t("recording_of", { id: call.call_id.slice(0, 8) });
  return `${dateAndTime(call.began_us)} · ${transportName(call.transport)} · ${clockOf(call.duration_ms)}`;
}
