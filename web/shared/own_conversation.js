// Where a conversation that is over can be read, heard and downloaded. Shown only where the server has kept it for this browser.

import { part } from "./element.js";
import { ApiError, SessionApi } from "./session_api.js";

// The stereo file is made when the conversation is over, a moment after its end.
const LOOKS = 10;
const LOOK_MS = 1_500;

export class OwnConversation {
  #box = part("kept", HTMLElement);
  #read = part("kept-read", HTMLAnchorElement);
  #recorded = part("kept-recorded", HTMLElement);
  #download = part("kept-download", HTMLAnchorElement);
  #film = part("kept-film", HTMLAnchorElement);
  #attempt = 0;

  hide() {
    this.#attempt += 1;
    this.#box.hidden = true;
  }

  /**
   * Show a conversation, and its recording as soon as there is one.
   *
   * @param {string} id of its session
   */
  async show(id) {
    this.hide();
    const attempt = this.#attempt;
    try {
      await this.#show(new SessionApi(id), attempt);
    } catch (error) {
      // Nothing is kept, or not for this browser: what was found so far stays.
      if (!(error instanceof ApiError)) throw error;
    }
  }

  /**
   * @param {SessionApi} api
   * @param {number} attempt
   */
  async #show(api, attempt) {
    await api.info();
    if (attempt !== this.#attempt) return;
    this.#read.href = `/s/${api.id}`;
    this.#recorded.hidden = true;
    this.#box.hidden = false;
    for (let look = 0; look < LOOKS && (await this.#look(api, attempt)); look += 1) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /**
   * Look for the recording; return whether more of it is to come.
   *
   * @param {SessionApi} api
   * @param {number} attempt
   */
  async #look(api, attempt) {
    const call = (await api.recordings()).at(-1);
    if (attempt !== this.#attempt || !call || call.problem) return false;
    if (!call.has_replay) return true;
    this.#recorded.hidden = false;
    this.#download.href = api.replayPath(call.call_id);
    this.#download.download = `${call.call_id}.wav`;
    this.#film.hidden = !call.has_film;
    this.#film.href = api.filmPath(call.call_id);
    this.#film.download = `${call.call_id}.mp4`;
    return call.pictures > 0 && !call.has_film;
  }
}
