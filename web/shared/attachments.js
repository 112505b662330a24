// Pictures that go with the next typed turn: chosen, pasted or dropped. Each is scaled down and encoded here, so that a photograph of
// a phone is sent in a moment; the server checks and stores it.

import { element } from "./element.js";
import { t } from "./language.js";

/** @import { Attached } from "../types/server.js" */

const MOST = 4;
const LONGEST_PX = 1_568;
const MEDIA_TYPE = "image/jpeg";
// Tried in this order where a picture has to be small; then it is scaled down further.
const QUALITIES = [0.85, 0.7, 0.55];
const SHRINK = 0.75;
const LEAST_PX = 64;

export class Attachments {
  #list;
  #onChange;
  #mostChars;
  /** @type {Attached[]} */
  #pictures = [];

  /**
   * @param {HTMLElement} list where the pictures are shown
   * @param {(problem: string) => void} onChange after each change, with the reason why a picture was not taken
   * @param {{ mostChars?: number }} [options] `mostChars`: bound of a picture as it is sent
   */
  constructor(list, onChange, { mostChars = Infinity } = {}) {
    this.#list = list;
    this.#onChange = onChange;
    this.#mostChars = mostChars;
  }

  get empty() {
    return !this.#pictures.length;
  }

  /**
   * Take the pictures among some files.
   *
   * @param {Iterable<File>} files
   */
  async add(files) {
    let problem = "";
    for (const file of files) {
      if (!file.type.startsWith("image/")) problem = t("no_picture", { name: file.name });
      else if (this.#pictures.length >= MOST) problem = t("most_pictures", { most: MOST });
      else {
        const picture = await encoded(file, this.#mostChars);
        if (picture) this.#pictures.push(picture);
        else problem = t("unreadable_picture", { name: file.name });
      }
    }
    this.#show(problem);
  }

  /** Return the pictures and begin anew. */
  take() {
    const taken = this.#pictures;
    this.#pictures = [];
    this.#show("");
    return taken;
  }

  /**
   * Give pictures back, which were not sent.
   *
   * @param {Attached[]} pictures
   */
  putBack(pictures) {
    this.#pictures = [...pictures, ...this.#pictures].slice(0, MOST);
    this.#show("");
  }

  /** @param {string} problem */
  #show(problem) {
    this.#list.replaceChildren(...this.#pictures.map((picture) => this.#item(picture)));
    this.#list.hidden = this.empty;
    this.#onChange(problem);
  }

  /** @param {Attached} picture */
  #item(picture) {
    const item = element("li");
    const remove = element("button", "", "×");
    remove.type = "button";
    remove.ariaLabel = t("remove_picture");
    remove.addEventListener("click", () => {
      this.#pictures = this.#pictures.filter((each) => each !== picture);
      this.#show("");
    });
    item.append(pictureOf(picture), remove);
    return item;
  }
}

/**
 * Return the element that shows a picture.
 *
 * @param {Attached} picture
 */
export function pictureOf({ media_type: type, data, width, height }) {
  const image = element("img", "shown");
  image.alt = t("picture");
  image.width = width;
  image.height = height;
  if (/^image\/(jpeg|png|webp)$/.test(type)) image.src = `data:${type};base64,${data}`;
  return image;
}

/**
 * Return a picture as it is sent; null for what is no picture.
 *
 * @param {File} file
 * @param {number} mostChars
 * @returns {Promise<Attached | null>}
 */
async function encoded(file, mostChars) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  try {
    for (let longestPx = LONGEST_PX; longestPx >= LEAST_PX; longestPx *= SHRINK) {
      const canvas = scaled(bitmap, longestPx);
      for (const quality of QUALITIES) {
        const [, data = ""] = canvas.toDataURL(MEDIA_TYPE, quality).split(",");
        if (data.length <= mostChars) return { media_type: MEDIA_TYPE, data, width: canvas.width, height: canvas.height };
      }
    }
    return null;
  } finally {
    bitmap.close();
  }
}

/**
 * @param {ImageBitmap} bitmap
 * @param {number} longestPx
 */
function scaled(bitmap, longestPx) {
  const scale = Math.min(1, longestPx / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}
