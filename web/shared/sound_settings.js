// What the user has set for sound and devices. Kept in this browser; a value that does not fit is the default.

const KEPT = "parley.sound";
export const GAIN_DB = 20; // up and down

/**
 * @typedef {object} SoundValues
 * @property {number} gain_db of the microphone
 * @property {number} volume_percent of the bot
 * @property {boolean} pushToTalk the microphone is open only while a key or a button is held
 * @property {boolean} chime a sound when a line is free
 * @property {boolean} shortcuts keys that act without Ctrl, Alt or Meta
 */

/** @type {SoundValues} */
const DEFAULTS = { gain_db: 0, volume_percent: 100, pushToTalk: false, chime: true, shortcuts: true };
/** @type {Record<string, [number, number]>} */
const LIMITS = { gain_db: [-GAIN_DB, GAIN_DB], volume_percent: [0, 100] };

/**
 * Return the object that was kept under a name; an empty one for anything else.
 *
 * @param {string} name
 * @returns {Record<string, unknown>}
 */
export function kept(name) {
  try {
    const value = JSON.parse(localStorage.getItem(name) ?? "{}");
    return value !== null && typeof value === "object" ? value : {};
  } catch (error) {
    if (error instanceof SyntaxError) return {}; // written by something else
    throw error;
  }
}

export class SoundSettings {
  /** @type {SoundValues} */
  #values = { ...DEFAULTS };

  constructor() {
    for (const [name, value] of Object.entries(kept(KEPT))) {
      if (fits(name, value)) Object.assign(this.#values, { [name]: value });
    }
  }

  /** @returns {Readonly<SoundValues>} */
  get values() {
    return this.#values;
  }

  /** @param {Partial<SoundValues>} changed */
  set(changed) {
    Object.assign(this.#values, changed);
    localStorage.setItem(KEPT, JSON.stringify(this.#values));
  }
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function fits(name, value) {
  if (!Object.hasOwn(DEFAULTS, name) || typeof value !== typeof DEFAULTS[/** @type {keyof SoundValues} */ (name)]) return false;
  if (typeof value !== "number") return true;
  const [lowest, highest] = LIMITS[name];
  return value >= lowest && value <= highest;
}
