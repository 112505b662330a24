// "Force listen": the bot has to listen while a button is held. Decides which chunks carry the order, and from when on the bot is heard
// again: not before the reply that was silenced is over, however short the press was. Pure.

/** @import { DuplexResult } from "../types/server.js" */

export class ForcedListening {
  #isHeld = false;
  #isSent = false;
  #isSilenced = false;

  press() {
    this.#isHeld = this.#isSilenced = true;
    this.#isSent = false;
  }

  release() {
    this.#isHeld = false;
  }

  /** Return whether the next chunk carries the order; a press between two chunks is sent with the second one. */
  takeOrder() {
    const isOrder = this.#isHeld || (this.#isSilenced && !this.#isSent);
    this.#isSent ||= isOrder;
    return isOrder;
  }

  /**
   * Return whether the speech of a result may be heard.
   *
   * @param {Pick<DuplexResult, "is_listen" | "interrupted" | "end_of_turn">} result
   */
  admits(result) {
    if (!this.#isSilenced) return true;
    if (this.#isHeld || !this.#isSent) return false;
    if (!result.interrupted && !result.is_listen && !result.end_of_turn) return false;
    this.#isSilenced = false;
    // The server has dropped what an interruption cut: what comes with it is new. The end of a turn is still of the silenced one.
    return result.interrupted;
  }
}
