// How the bot listens: a turn at a time, or all the time. Decides which of the two the next call asks for (the address, what
// was chosen last, what the server does by itself) and shows, in a full-duplex call, what the engine decides in every unit.

import { part } from "./element.js";

const CHOSEN = "parley.mode";
const MODES = ["cascade", "duplex"];
const HISTORY = 150; // units: 12 seconds at 80 ms
const NAMES = { l: "listens", s: "speaks", b: "backchannels", y: "yields" };

const parts = {
  modes: part("modes"),
  strip: part("votes"),
  now: part("vote"),
};

export class Mode {
  #mode = "cascade";
  #sees = false;
  #votes = "";
  #offered = () => {};
  #known = new Promise((resolve) => (this.#offered = resolve));

  constructor() {
    for (const choice of parts.modes.querySelectorAll("input")) {
      choice.addEventListener("change", () => this.#choose(choice.value));
    }
  }

  /** The mode that the next call asks for. */
  get chosen() {
    return this.#mode;
  }

  /** Whether the engine of the next call looks at a camera. */
  get sees() {
    return this.#sees && this.#mode === "duplex";
  }

  /** Resolves when it is known what the server can do: a call that is asked for sooner waits for that. */
  get known() {
    return this.#known;
  }

  /** What the server can do is known, or cannot be found out: offer it. */
  offer({ mode, omni, sees } = {}) {
    this.#offered();
    if (!omni) return;
    this.#sees = Boolean(sees);
    const asked = location.pathname.replace(/\/+$/, "") === "/duplex" ? "duplex" : null;
    const chosen = asked ?? localStorage.getItem(CHOSEN) ?? mode;
    this.#mode = MODES.includes(chosen) ? chosen : "cascade";
    for (const choice of parts.modes.querySelectorAll("input")) choice.checked = choice.value === this.#mode;
    parts.modes.hidden = false;
    document.body.dataset.mode = this.#mode;
  }

  /** A call may not change it. */
  lock(busy) {
    parts.modes.disabled = busy;
    if (!busy) this.#forget();
  }

  /** Votes of the engine, the oldest first, a letter each. */
  take({ votes, unit_ms: unitMs }) {
    this.#votes = (this.#votes + votes).slice(-HISTORY);
    parts.strip.hidden = false;
    draw(parts.strip.querySelector("canvas"), this.#votes);
    parts.now.textContent = `The engine ${NAMES[this.#votes.at(-1)]}, asked every ${unitMs} ms`;
  }

  #choose(mode) {
    this.#mode = mode;
    document.body.dataset.mode = mode;
    localStorage.setItem(CHOSEN, mode);
  }

  #forget() {
    this.#votes = "";
    parts.strip.hidden = true;
  }
}

function draw(canvas, votes) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const style = getComputedStyle(canvas);
  const colours = { s: "--accent", b: "--warn", y: "--bad", l: "--edge" };
  const paper = canvas.getContext("2d");
  paper.setTransform(scale, 0, 0, scale, 0, 0);
  paper.clearRect(0, 0, width, height);
  const step = width / HISTORY;
  const from = HISTORY - votes.length;
  [...votes].forEach((vote, at) => {
    const tall = vote === "l" ? 0.2 : vote === "b" ? 0.6 : 1;
    paper.fillStyle = style.getPropertyValue(colours[vote] ?? "--edge");
    paper.fillRect((from + at) * step, height * (1 - tall), Math.max(1, step - 0.5), height * tall);
  });
}
