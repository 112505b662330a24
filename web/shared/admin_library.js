// Documents and reference voices on the operator's page: which there are, one more, one less.

import * as api from "./admin_api.js";
import { busy, megabytes } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { keyed } from "./lists.js";

/** @import { DocumentList, StoredDocument, Voice } from "../types/server.js" */
/** @import { CardActions } from "./admin_card.js" */

const parts = {
  documentsCard: part("documents-card", HTMLElement),
  documentsWhat: part("documents-what", HTMLElement),
  documents: part("documents", HTMLElement),
  addDocument: part("add-document", HTMLFormElement),
  addDocumentButton: part("add-document-button", HTMLButtonElement),
  documentFile: part("document-file", HTMLInputElement),
  readDocuments: part("read-documents", HTMLButtonElement),
  voices: part("voices", HTMLElement),
  noVoices: part("no-voices", HTMLElement),
  upload: part("upload", HTMLFormElement),
  voiceFile: part("voice-file", HTMLInputElement),
  voiceName: part("voice-name", HTMLInputElement),
  uploadButton: part("upload-button", HTMLButtonElement),
};

export class LibraryCards {
  #actions;
  #mostDocumentBytes = Infinity;

  /** @param {CardActions} actions */
  constructor(actions) {
    this.#actions = actions;
    parts.upload.addEventListener("submit", (event) => {
      event.preventDefault();
      actions.run(() => this.#upload());
    });
    parts.addDocument.addEventListener("submit", (event) => {
      event.preventDefault();
      actions.run(() => this.#addDocument());
    });
    parts.readDocuments.addEventListener("click", () => actions.run(() => this.#readDocuments()));
    parts.voiceFile.addEventListener("change", () => proposeName());
  }

  /**
   * @param {DocumentList} library
   * @param {Voice[]} voices
   */
  show({ documents, passages, most_bytes: mostBytes }, voices) {
    this.#mostDocumentBytes = mostBytes;
    parts.documentsCard.hidden = passages === 0;
    write(parts.documentsWhat, `Answers come from these ${documents.length} files (${passages} passages).`);
    keyed(parts.documents, documents, "name", (stored) => this.#document(stored), updateDocument);
    keyed(parts.voices, voices, "id", (voice) => this.#voice(voice), () => {});
    parts.noVoices.hidden = voices.length > 0;
  }

  /** @param {Voice} voice */
  #voice({ id, name, duration_ms: durationMs }) {
    const made = element("li");
    const sound = element("audio");
    sound.controls = true;
    sound.preload = "none";
    sound.src = api.voicePath(id);
    sound.setAttribute("aria-label", name);
    const button = element("button", "quiet", "Delete");
    button.type = "button";
    button.setAttribute("aria-label", `Delete ${name}`);
    button.addEventListener("click", () => this.#actions.run(async () => {
      const text = "Engines can no longer use this voice. This cannot be undone.";
      if (!(await this.#actions.confirmed(`Delete the voice ${name}?`, text, "Delete"))) return;
      await api.removeVoice(id);
      this.#actions.say(`${name} was deleted.`);
      await this.#actions.lookAgain();
    }));
    made.append(element("b", "", name), element("small", "", `${(durationMs / 1000).toFixed(1)} s`), button, sound);
    return made;
  }

  /** @param {StoredDocument} document */
  #document({ name }) {
    const made = element("li");
    const button = element("button", "quiet", "Delete");
    button.type = "button";
    button.setAttribute("aria-label", `Delete ${name}`);
    button.addEventListener("click", () => this.#actions.run(async () => {
      const text = "The file is deleted from the folder of documents, and no answer comes from it any more.";
      if (!(await this.#actions.confirmed(`Delete the document ${name}?`, text, "Delete"))) return;
      await api.removeDocument(name);
      this.#actions.say(`${name} was deleted.`);
      await this.#actions.lookAgain();
    }));
    made.append(element("b", "", name), element("small"), button);
    return made;
  }

  async #addDocument() {
    const [file] = parts.documentFile.files ?? [];
    if (!file) return;
    // The server refuses it while it is being sent, which a browser reports as a broken connection.
    if (file.size > this.#mostDocumentBytes) {
      const limit = `the limit is ${megabytes(this.#mostDocumentBytes)}`;
      throw new api.ApiError(`${file.name} has ${megabytes(file.size)}; ${limit}.`);
    }
    const button = parts.addDocumentButton;
    await busy(button, "Adding…", () => api.addDocument(file));
    parts.addDocument.reset();
    this.#actions.say(`Answers come from ${file.name} now, too.`);
    await this.#actions.lookAgain();
  }

  async #readDocuments() {
    const { passages } = await busy(parts.readDocuments, "Reading…", () => api.readDocuments());
    this.#actions.say(`The folder was read again: ${passages} passages.`);
    await this.#actions.lookAgain();
  }

  async #upload() {
    const [file] = parts.voiceFile.files ?? [];
    const name = parts.voiceName.value.trim();
    if (!file || !name) return;
    const sound = await dataUrl(file);
    const { message } = await busy(parts.uploadButton, "Adding…", () => api.addVoice(name, sound));
    parts.upload.reset();
    this.#actions.say(`${name} was ${message}.`);
    await this.#actions.lookAgain();
  }
}

function proposeName() {
  const [file] = parts.voiceFile.files ?? [];
  if (file && !parts.voiceName.value) parts.voiceName.value = file.name.replace(/\.[^.]*$/, "").slice(0, 100);
}

/**
 * @param {HTMLElement} row
 * @param {StoredDocument} document
 */
function updateDocument(row, { passages, size_bytes: sizeBytes }) {
  const count = passages === 1 ? "1 passage" : `${passages} passages`;
  write(found("small", HTMLElement, row), `${count}, ${Math.ceil(sizeBytes / 1000)} kB`);
}

/**
 * @param {File} file
 * @returns {Promise<string>}
 */
function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new api.ApiError("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}
