// Words of the bot in step with its sound: which of them have been heard, which are still to come, and which were cut off. Pure: the
// times of the sound, and the present time, come from its player.

// Older turns are on the page already, where they no longer change.
const MOST_TURNS = 50;
const LINE_CHARS = 42;
const MOST_LINES = 2;
// A line stays for the time in which it can be read.
const READ_S = 4;
// Scripts that are written without spaces are taken apart letter by letter.
const TOKEN = /\s*(?:[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]+)/gu;

/** @typedef {{ text: string, atS: number }} Word with the time at which it begins to sound */
/** @typedef {{ startS: number, endS: number }} Stretch of time in which a piece of speech sounds */
/**
 * @typedef {object} Turn
 * @property {number} id
 * @property {Word[]} words
 * @property {string} waiting text whose sound has not come yet
 * @property {number} endS of its sound
 * @property {number | null} cutS when it was cut off
 * @property {boolean} isOver nothing of it comes any more
 */
/** @typedef {{ id: number, heard: string, rest: string, isCut: boolean, isFinal: boolean }} ShownTurn `rest`: still to come, or cut off */

/**
 * Return the words of a piece, spread over the time in which it sounds by their length.
 *
 * @param {string} text
 * @param {Stretch} when
 * @returns {Word[]}
 */
function spread(text, { startS, endS }) {
  let chars = 0;
  return (text.match(TOKEN) ?? []).map((word) => {
    const atS = startS + ((endS - startS) * chars) / text.length;
    chars += word.length;
    return { text: word, atS };
  });
}

export class SpokenText {
  /** @type {Turn[]} */
  #turns = [];
  #made = 0;

  /**
   * Take a piece of text, with the time in which its sound is played; null where it has none, or where it is not played.
   *
   * @param {string} text
   * @param {Stretch | null} when
   */
  say(text, when) {
    let turn = this.#turns.at(-1);
    if (!turn || turn.isOver) {
      if (!text) return;
      turn = { id: (this.#made += 1), words: [], waiting: "", endS: when?.endS ?? 0, cutS: null, isOver: false };
      this.#turns.push(turn);
      if (this.#turns.length > MOST_TURNS) this.#turns.shift();
    }
    turn.waiting += text;
    if (turn.cutS !== null) this.#place(turn, { startS: Infinity, endS: Infinity });
    else if (when) this.#place(turn, when);
  }

  /**
   * Note that the rest of the speech is dropped.
   *
   * @param {number} nowS
   */
  cut(nowS) {
    const turn = this.#turns.at(-1);
    if (!turn || turn.cutS !== null) return;
    if (turn.endS <= nowS && !turn.waiting.trim()) {
      // It was heard to its end: nothing is left to drop.
      turn.isOver = true;
      return;
    }
    turn.cutS = nowS;
    this.#place(turn, { startS: Infinity, endS: Infinity });
  }

  /**
   * Note that what follows belongs to another turn.
   *
   * @param {number} nowS
   */
  endTurn(nowS) {
    const turn = this.#turns.at(-1);
    if (!turn || turn.isOver) return;
    const atS = Math.max(turn.endS, nowS);
    // Text without sound of its own is read when the sound before it is over.
    if (turn.waiting.trim()) this.#place(turn, { startS: atS, endS: atS });
    turn.isOver = true;
  }

  /**
   * Return the turns as they are shown at a time, oldest first.
   *
   * @param {number} nowS
   * @returns {ShownTurn[]}
   */
  turns(nowS) {
    return this.#turns.map((turn) => {
      const count = heardOf(turn, nowS);
      const joined = (/** @type {Word[]} */ words) => words.map(({ text }) => text).join("");
      const isCut = turn.cutS !== null;
      return {
        id: turn.id,
        heard: joined(turn.words.slice(0, count)),
        rest: joined(turn.words.slice(count)) + turn.waiting,
        isCut,
        isFinal: turn.isOver && (isCut || nowS >= turn.endS),
      };
    });
  }

  /**
   * Return the subtitle of a time: the last lines of what was heard, or nothing when that is some time ago.
   *
   * @param {number} nowS
   */
  subtitle(nowS) {
    const turn = this.#turns.findLast((each) => heardOf(each, nowS) > 0);
    if (!turn) return "";
    const heard = turn.words.slice(0, heardOf(turn, nowS));
    const silentS = Math.max(heard.at(-1)?.atS ?? 0, Math.min(turn.endS, turn.cutS ?? Infinity));
    return nowS > silentS + READ_S ? "" : linesOf(heard).slice(-MOST_LINES).join("\n");
  }

  /**
   * @param {Turn} turn
   * @param {Stretch} when
   */
  #place(turn, when) {
    turn.words.push(...spread(turn.waiting, when));
    turn.waiting = turn.waiting.match(/\s*$/)?.[0] ?? "";
    if (when.endS < Infinity) turn.endS = when.endS;
  }
}

/**
 * Return how many words of a turn have begun to sound.
 *
 * @param {Turn} turn
 * @param {number} nowS
 */
function heardOf(turn, nowS) {
  const untilS = Math.min(nowS, turn.cutS ?? Infinity);
  const next = turn.words.findIndex(({ atS }) => atS > untilS);
  return next < 0 ? turn.words.length : next;
}

/**
 * Break words into lines; a line never changes once the next one has begun.
 *
 * @param {Word[]} words
 */
function linesOf(words) {
  /** @type {string[]} */
  const lines = [];
  for (const { text } of words) {
    const line = lines.at(-1);
    if (line !== undefined && (line + text).length <= LINE_CHARS) lines[lines.length - 1] = line + text;
    else lines.push(text.trimStart());
  }
  return lines;
}
