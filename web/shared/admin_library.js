// Documents and reference voices on the operator's page: which there are, one more, one less.

import * as api from "./admin_api.js";
import { busy, megabytes } from "./admin_card.js";
import { element, found, part, write } from "./element.js";
import { keyed } from "./lists.js";
import { t } from "./operator_language.js";

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
    write(parts.documentsWhat, t("admin_documents_what", { files: documents.length, passages }));
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
    const button = element("button", "quiet", t("admin_delete"));
    button.type = "button";
    button.setAttribute("aria-label", t("admin_delete_name", { name }));
    button.addEventListener("click", () => this.#actions.run(async () => {
      const [title, text] = [t("admin_delete_voice", { name }), t("admin_delete_voice_text")];
      if (!(await this.#actions.confirmed(title, text, t("admin_delete")))) return;
      await api.removeVoice(id);
      this.#actions.say(t("admin_deleted", { name }));
      await this.#actions.lookAgain();
    }));
    made.append(element("b", "", name), element("small", "", `${(durationMs / 1000).toFixed(1)} s`), button, sound);
    return made;
  }

  /** @param {StoredDocument} document */
  #document({ name }) {
    const made = element("li");
    const button = element("button", "quiet", t("admin_delete"));
    button.type = "button";
    button.setAttribute("aria-label", t("admin_delete_name", { name }));
    button.addEventListener("click", () => this.#actions.run(async () => {
      const [title, text] = [t("admin_delete_document", { name }), t("admin_delete_document_text")];
      if (!(await this.#actions.confirmed(title, text, t("admin_delete")))) return;
      await api.removeDocument(name);
      this.#actions.say(t("admin_deleted", { name }));
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
      const sizes = { size: megabytes(file.size), most: megabytes(this.#mostDocumentBytes) };
      throw new api.ApiError(t("admin_document_too_large", { name: file.name, ...sizes }));
    }
    const button = parts.addDocumentButton;
    await busy(button, t("admin_adding"), () => api.addDocument(file));
    parts.addDocument.reset();
    this.#actions.say(t("admin_document_added", { name: file.name }));
    await this.#actions.lookAgain();
  }

  async #readDocuments() {
    const { passages } = await busy(parts.readDocuments, t("admin_reading"), () => api.readDocuments());
    this.#actions.say(t("admin_folder_read", { passages }));
    await this.#actions.lookAgain();
  }

  async #upload() {
    const [file] = parts.voiceFile.files ?? [];
    const name = parts.voiceName.value.trim();
    if (!file || !name) return;
    const sound = await dataUrl(file);
    await busy(parts.uploadButton, t("admin_adding"), () => api.addVoice(name, sound));
    parts.upload.reset();
    this.#actions.say(t("admin_voice_added", { name }));
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
  const facts = { count: passages, size: Math.ceil(sizeBytes / 1000) };
  write(found("small", HTMLElement, row), t(passages === 1 ? "admin_one_passage" : "admin_passages", facts));
}

/**
 * @param {File} file
 * @returns {Promise<string>}
 */
function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new api.ApiError(t("admin_unreadable")));
    reader.readAsDataURL(file);
  });
}
