// Decisions of the last units of a full-duplex model, as bars: high where the bot speaks.

import { required } from "./guards.js";

const MOST_UNITS = 240;

export class UnitChart {
  #canvas;
  /** @type {boolean[]} true for a unit in which the bot speaks */
  #units = [];

  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  /** @param {boolean} speaks */
  add(speaks) {
    this.#units.push(speaks);
    this.#units.splice(0, this.#units.length - MOST_UNITS);
    this.#draw();
  }

  #draw() {
    const canvas = this.#canvas;
    const style = getComputedStyle(canvas);
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = canvas.clientHeight * devicePixelRatio;
    const pen = required(canvas.getContext("2d"), "the canvas");
    const width = Math.max(3, canvas.width / MOST_UNITS);
    this.#units.slice(-Math.floor(canvas.width / width)).forEach((speaks, place) => {
      pen.fillStyle = style.getPropertyValue(speaks ? "--accent" : "--edge");
      const height = canvas.height * (speaks ? 0.8 : 0.3);
      pen.fillRect(place * width, canvas.height - height, width - 1, height);
    });
  }
}
