// Pictures that go with the next typed turn: chosen, pasted or dropped. Each is scaled down and encoded here, so that a photograph of
// a phone is sent in a moment; the server checks and stores it.

import { element } from "./element.js";
import { t } from "./language.js";

/** @import { Attached } from "../types/server.js" */

const MOST = 4;
const LONGEST_PX = 1_568;
const MEDIA_TYPE = "image/jpeg";

export class Attachments {
  #list;
  #onChange;
  /** @type {Attached[]} */
  #pictures = [];

  /**
   * @param {HTMLElement} list where the pictures are shown
   * @param {(problem: string) => void} onChange after each change, with the reason why a picture was not taken
   */
  constructor(list, onChange) {
    this.#list = list;
    this.#onChange = onChange;
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
        const picture = await encoded(file);
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
 * @returns {Promise<Attached | null>}
 */
async function encoded(file) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  const scale = Math.min(1, LONGEST_PX / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const [, data = ""] = canvas.toDataURL(MEDIA_TYPE, 0.85).split(",");
  return { media_type: MEDIA_TYPE, data, width: canvas.width, height: canvas.height };
}
