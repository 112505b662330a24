// Operator's page. Reads the state of the server every two seconds while the page is visible; switches surfaces, removes callers
// from the queue, sets estimates, keeps voices and documents. Typed text and the focus survive a refresh.

import * as api from "./admin_api.js";
import { element, found, part, showNotice, write } from "./element.js";
import { messageOf, required } from "./guards.js";
import { keyed, span } from "./lists.js";
import { LiveCalls } from "./live_calls.js";

/**
 * @import { App, CallUse, EstimateSettings, Estimates, LiveCall, ModelUse, Status, StoredDocument, Ticket, Usage, Voice, WorkerView } from "../types/server.js"
 */

const LOOK_MS = 2_000;
// Longest pause between attempts to reach a server that is away.
const MOST_LOOK_MS = 15_000;
const NOTICE_MS = 8_000;

/** @typedef {"loading" | "locked" | "live" | "paused" | "away"} PageState */

/** @type {Record<PageState, string>} */
const STATES = { loading: "Loading", locked: "Locked", live: "Live", paused: "Paused", away: "Server unreachable" };
/** @type {Record<string, string>} */
const TONES = { idle: "", loading: "wait", error: "bad", offline: "bad" };
/** @type {Record<string, string>} */
const TASKS = { chat: "chat", half_duplex_audio: "half duplex", audio_duplex: "audio duplex", omni_duplex: "omni duplex" };
/**
 * @typedef {object} Estimate
 * @property {keyof EstimateSettings} name
 * @property {"chat" | "half_duplex" | "audio_duplex" | "omni_duplex"} [learnt] task whose length is measured
 * @property {string} label
 * @property {number} most
 * @property {string} [hint]
 */

/** @type {Estimate[]} */
const ESTIMATES = [
  { name: "eta_chat_s", learnt: "chat", label: "Chat, s", most: 86_400 },
  { name: "eta_half_duplex_s", learnt: "half_duplex", label: "Half duplex, s", most: 86_400 },
  { name: "eta_audio_duplex_s", learnt: "audio_duplex", label: "Audio duplex, s", most: 86_400 },
  { name: "eta_omni_duplex_s", learnt: "omni_duplex", label: "Omni duplex, s", most: 86_400 },
  { name: "ema_alpha", label: "Weight of the newest conversation", most: 1, hint: "Share of the newest conversation in the measured length; 1 ignores all earlier ones." },
];

const parts = {
  state: part("state", HTMLElement),
  notice: part("notice", HTMLElement),
  locked: part("locked", HTMLElement),
  login: part("login", HTMLFormElement),
  token: part("token", HTMLInputElement),
  tokenEnv: part("token-env", HTMLElement),
  logOut: part("log-out", HTMLButtonElement),
  open: part("open", HTMLElement),
  tiles: part("tiles", HTMLElement),
  exposure: part("exposure", HTMLElement),
  apps: part("apps", HTMLElement),
  workers: part("workers", HTMLElement),
  workersTable: required(part("workers", HTMLElement).closest("div"), "the table of workers"),
  noWorkers: part("no-workers", HTMLElement),
  queue: part("queue", HTMLElement),
  queueTable: part("queue-table", HTMLElement),
  noQueue: part("no-queue", HTMLElement),
  usageWhat: part("usage-what", HTMLElement),
  models: part("models", HTMLElement),
  modelsTable: part("models-table", HTMLElement),
  calls: part("calls", HTMLElement),
  callsTable: part("calls-table", HTMLElement),
  noUsage: part("no-usage", HTMLElement),
  eta: part("eta", HTMLFormElement),
  etaRows: part("eta-rows", HTMLElement),
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
  confirm: part("confirm", HTMLDialogElement),
  confirmTitle: part("confirm-title", HTMLElement),
  confirmText: part("confirm-text", HTMLElement),
  confirmGo: part("confirm-go", HTMLElement),
};

class Page {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #noticeTimer;
  #failures = 0;
  /** @type {((decision: string) => void) | undefined} settles the question that the dialog asks */
  #decide;
  // A refresh that began before a change shows the state before it: it is dropped.
  #epoch = 0;
  /** @type {Estimates | null} */
  #estimates = null;
  #mostDocumentBytes = Infinity;
  #live = new LiveCalls({
    say: (text) => this.#say(text),
    end: (call) => this.#do(() => this.#endCall(call)),
  });

  begin() {
    this.#makeEstimates();
    const offered = api.offeredToken();
    parts.login.addEventListener("submit", (event) => this.#handle(event, () => this.#logIn(parts.token.value)));
    parts.logOut.addEventListener("click", () => this.#do(() => this.#logOut()));
    parts.eta.addEventListener("submit", (event) => this.#handle(event, () => this.#saveEstimates()));
    parts.eta.addEventListener("reset", (event) => this.#handle(event, () => this.#showEstimates(true)));
    parts.eta.addEventListener("input", () => this.#marksEstimates());
    parts.upload.addEventListener("submit", (event) => this.#handle(event, () => this.#upload()));
    parts.addDocument.addEventListener("submit", (event) => this.#handle(event, () => this.#addDocument()));
    parts.readDocuments.addEventListener("click", () => this.#do(() => this.#readDocuments()));
    parts.voiceFile.addEventListener("change", () => this.#proposeName());
    parts.confirm.addEventListener("close", () => parts.confirm.open || this.#decide?.(parts.confirm.returnValue));
    document.addEventListener("visibilitychange", () => this.#onVisibility());
    this.#begin(offered);
  }

  /** @param {string | null} offered token of the address */
  async #begin(offered) {
    if (offered) await this.#do(() => this.#logIn(offered));
    if (!offered || document.body.dataset.state === "loading") await this.#enter();
  }

  // Refreshing.

  async #enter() {
    clearTimeout(this.#timer);
    try {
      const { is_operator: isOperator, token_env: tokenEnv } = await api.operator();
      this.#failures = 0;
      if (isOperator) {
        this.#show("live");
        await this.#look();
      } else {
        write(parts.tokenEnv, tokenEnv);
        this.#lock();
      }
    } catch (error) {
      this.#away(error);
      this.#timer = setTimeout(() => this.#enter(), this.#waitMs());
    }
  }

  async #look() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const epoch = this.#epoch;
    try {
      const seen = await api.look();
      if (epoch !== this.#epoch) return;
      this.#failures = 0;
      this.#show(document.hidden ? "paused" : "live");
      this.#render(seen);
    } catch (error) {
      if (epoch !== this.#epoch) return;
      if (isForbidden(error)) {
        await this.#enter();
        return;
      }
      this.#away(error);
    }
    if (!document.hidden) this.#timer = setTimeout(() => this.#look(), this.#waitMs());
  }

  /** Refresh at once after a change; a refresh under way would show the state before it. */
  #lookAgain() {
    this.#epoch += 1;
    return this.#look();
  }

  #waitMs() {
    return Math.min(LOOK_MS * 2 ** Math.max(0, this.#failures - 1), MOST_LOOK_MS);
  }

  /** @param {unknown} error */
  #away(error) {
    this.#failures += 1;
    this.#show("away");
    this.#say(messageOf(error), { bad: true });
  }

  #onVisibility() {
    if (document.body.dataset.state === "locked") return;
    if (document.hidden) {
      clearTimeout(this.#timer);
      this.#epoch += 1;
      this.#show("paused");
    } else {
      this.#enter();
    }
  }

  /** @param {PageState} state */
  #show(state) {
    const was = document.body.dataset.state;
    document.body.dataset.state = state;
    write(parts.state, STATES[state]);
    parts.open.hidden = state === "locked" || state === "loading" || (state === "away" && was === "loading");
    parts.locked.hidden = state !== "locked";
    parts.logOut.hidden = state === "locked";
    if (was === "away" && state === "live") this.#say("");
  }

  #lock() {
    this.#epoch += 1;
    this.#live.stop();
    this.#show("locked");
    parts.token.focus();
  }

  // Changing.

  /**
   * @param {Event} event
   * @param {() => unknown} work
   */
  #handle(event, work) {
    event.preventDefault();
    this.#do(work);
  }

  /**
   * Do work, and show why it failed.
   *
   * @param {() => unknown} work
   */
  async #do(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      this.#say(error.message, { bad: true });
      if (isForbidden(error) && document.body.dataset.state !== "locked") await this.#enter();
    }
  }

  /**
   * @param {string} text
   * @param {{ bad?: boolean }} [options]
   */
  #say(text, { bad = false } = {}) {
    clearTimeout(this.#noticeTimer);
    showNotice(parts.notice, text, { bad });
    if (text && !bad) this.#noticeTimer = setTimeout(() => showNotice(parts.notice, ""), NOTICE_MS);
  }

  /**
   * Ask the operator to confirm.
   *
   * @param {string} title
   * @param {string} text
   * @param {string} go label of the button that confirms
   */
  async #confirmed(title, text, go) {
    write(parts.confirmTitle, title);
    write(parts.confirmText, text);
    write(parts.confirmGo, go);
    // The event of a closed dialog comes later, and may find the dialog open for this question.
    this.#decide?.(parts.confirm.returnValue);
    parts.confirm.returnValue = "keep";
    parts.confirm.showModal();
    const decision = await new Promise((resolve) => (this.#decide = resolve));
    return decision === "go";
  }

  /** @param {string} token */
  async #logIn(token) {
    await api.logIn(token);
    parts.token.value = "";
    this.#say("");
    await this.#enter();
  }

  async #logOut() {
    await api.logOut();
    this.#lock();
  }

  /** @param {LiveCall} call */
  async #endCall({ call_id: id, transport }) {
    const text = "What is being said goes on for two seconds at most.";
    if (!(await this.#confirmed("End this call?", text, "End"))) return;
    await api.endCall(id);
    this.#say(`The call (${transport}) ends.`);
    await this.#lookAgain();
  }

  // Showing.

  /** @param {api.ServerView} seen */
  #render({ status, workers, queue, apps, estimates, voices, library, usage, live }) {
    this.#renderTiles(status);
    write(parts.exposure, status.exposure ?? "");
    keyed(parts.apps, apps, "app_id", (app) => this.#app(app), updateApp);
    keyed(parts.workers, workers, "worker_id", makeWorker, updateWorker);
    parts.noWorkers.hidden = workers.length > 0;
    parts.workersTable.hidden = workers.length === 0;
    keyed(parts.queue, queue, "ticket_id", (ticket) => this.#ticket(ticket), updateTicket);
    parts.noQueue.hidden = queue.length > 0;
    parts.queueTable.hidden = queue.length === 0;
    this.#live.show(live);
    renderUsage(usage);
    this.#estimates = estimates;
    this.#showEstimates(false);
    const { documents, passages, most_bytes: mostBytes } = library;
    this.#mostDocumentBytes = mostBytes;
    parts.documentsCard.hidden = passages === 0;
    write(parts.documentsWhat, `Answers come from these ${documents.length} files (${passages} passages).`);
    keyed(parts.documents, documents, "name", (stored) => this.#document(stored), updateDocument);
    keyed(parts.voices, voices, "id", (voice) => this.#voice(voice), () => {});
    parts.noVoices.hidden = voices.length > 0;
  }

  /** @param {Status} status */
  #renderTiles(status) {
    const tiles = [
      { key: "calls", label: "calls", value: status.calls },
      { key: "waiting", label: "waiting", value: status.waiting + status.queue_length },
      { key: "duplex", label: "in a call", value: status.duplex_workers },
      { key: "busy", label: "busy", value: status.busy_workers },
      { key: "idle", label: "idle", value: status.idle_workers },
      { key: "loading", label: "loading", value: status.loading_workers },
      { key: "down", label: "in error or offline", value: status.error_workers + status.offline_workers },
    ];
    // Without workers their tiles would show nothing.
    const shown = status.total_workers ? tiles : tiles.slice(0, 2);
    keyed(parts.tiles, shown, "key", makeTile, (node, tile) => {
      write(found("dd", HTMLElement, node), String(tile.value));
      node.classList.toggle("bad", tile.key === "down" && tile.value > 0);
    });
  }

  /** @param {App} app */
  #app({ app_id: id, name, route }) {
    const made = element("li");
    const label = element("label", "", name);
    label.append(element("code", "", route));
    const button = element("button", "switch");
    button.type = "button";
    button.id = `app-${id}`;
    button.dataset.role = "switch";
    label.htmlFor = button.id;
    button.setAttribute("role", "switch");
    button.addEventListener("click", () => this.#do(async () => {
      const enabled = button.getAttribute("aria-checked") !== "true";
      button.setAttribute("aria-busy", "true");
      try {
        const app = await api.switchApp(id, enabled);
        updateApp(made, app);
        this.#say(`${name} is ${app.enabled ? "open" : "closed"}.`);
      } finally {
        button.removeAttribute("aria-busy");
      }
      await this.#lookAgain();
    }));
    made.append(label, button);
    return made;
  }

  /** @param {Ticket} ticket */
  #ticket({ ticket_id: id, kind, session_id: session, transport }) {
    // A caller who waits for a line has no session yet.
    const caller = session ?? `a caller (${transport})`;
    const made = element("tr");
    const head = session === null ? element("th", "", caller) : cell("th", "", element("code", "", session));
    head.scope = "row";
    made.append(
      element("td", "number"),
      head,
      element("td"),
      element("td", "number"),
      element("td", "number"),
      element("td", "", kind),
      element("td", "", transport ?? "–"),
    );
    const button = element("button", "quiet", "Remove");
    button.type = "button";
    button.setAttribute("aria-label", `Remove ${caller} from the queue`);
    button.addEventListener("click", () => this.#do(async () => {
      const text = "The caller is informed that an operator removed them from the queue.";
      if (!(await this.#confirmed(`Remove ${caller} from the queue?`, text, "Remove"))) return;
      const { success } = await api.takeOut(id);
      this.#say(success ? `${caller} was removed from the queue and informed.` : `${caller} is no longer waiting.`);
      await this.#lookAgain();
    }));
    made.append(cell("td", "", button));
    return made;
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
    button.addEventListener("click", () => this.#do(async () => {
      const text = "Engines can no longer use this voice. This cannot be undone.";
      if (!(await this.#confirmed(`Delete the voice ${name}?`, text, "Delete"))) return;
      await api.removeVoice(id);
      this.#say(`${name} was deleted.`);
      await this.#lookAgain();
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
    button.addEventListener("click", () => this.#do(async () => {
      const text = "The file is deleted from the folder of documents, and no answer comes from it any more.";
      if (!(await this.#confirmed(`Delete the document ${name}?`, text, "Delete"))) return;
      await api.removeDocument(name);
      this.#say(`${name} was deleted.`);
      await this.#lookAgain();
    }));
    made.append(element("b", "", name), element("small"), button);
    return made;
  }

  // Estimates.

  #makeEstimates() {
    for (const { name, label, most, hint } of ESTIMATES) {
      const row = element("div");
      const head = element("label", "", label);
      const input = element("input");
      input.type = "number";
      input.id = head.htmlFor = input.name = name;
      input.max = String(most);
      input.min = "0";
      input.step = "any";
      input.required = true;
      const note = element("small", "", hint ?? "");
      note.id = `${name}-note`;
      input.setAttribute("aria-describedby", note.id);
      row.append(head, input, note);
      parts.etaRows.append(row);
    }
  }

  /**
   * Show the settings, except where another value is being typed.
   *
   * @param {boolean} anyway also there
   */
  #showEstimates(anyway) {
    const estimates = this.#estimates;
    for (const { name, learnt } of ESTIMATES) {
      const input = inputOf(name);
      const value = String(estimates?.config[name] ?? "");
      const isUntouched = input.value === (input.dataset.set ?? "") && document.activeElement !== input;
      if (anyway || isUntouched) input.value = value;
      input.dataset.set = value;
      if (!learnt) continue;
      const note = estimates ? measured(estimates, learnt) : "Nothing measured yet.";
      write(found(`#${name}-note`, HTMLElement, parts.etaRows), note);
    }
    this.#marksEstimates();
  }

  #marksEstimates() {
    const inputs = ESTIMATES.map(({ name }) => inputOf(name));
    const isChanged = inputs.some((input) => input.value !== input.dataset.set);
    for (const input of inputs) input.setAttribute("aria-invalid", String(!isGood(input)));
    for (const button of parts.eta.querySelectorAll("button")) button.disabled = !isChanged;
  }

  async #saveEstimates() {
    /** @type {Partial<EstimateSettings>} */
    const changed = {};
    for (const { name, label, most } of ESTIMATES) {
      const input = inputOf(name);
      if (!isGood(input)) {
        input.focus();
        this.#say(`${label}: enter a number above 0 and at most ${most.toLocaleString("en")}.`, { bad: true });
        return;
      }
      if (input.value !== input.dataset.set) changed[name] = input.valueAsNumber;
    }
    this.#estimates = await api.setEstimates(changed);
    this.#showEstimates(true);
    this.#say("The estimates are saved, and waiting callers are informed.");
    await this.#lookAgain();
  }

  // Documents.

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
    this.#say(`Answers come from ${file.name} now, too.`);
    await this.#lookAgain();
  }

  async #readDocuments() {
    const { passages } = await busy(parts.readDocuments, "Reading…", () => api.readDocuments());
    this.#say(`The folder was read again: ${passages} passages.`);
    await this.#lookAgain();
  }

  // Voices.

  #proposeName() {
    const [file] = parts.voiceFile.files ?? [];
    if (file && !parts.voiceName.value) parts.voiceName.value = file.name.replace(/\.[^.]*$/, "").slice(0, 100);
  }

  async #upload() {
    const [file] = parts.voiceFile.files ?? [];
    const name = parts.voiceName.value.trim();
    if (!file || !name) return;
    const sound = await dataUrl(file);
    const { message } = await busy(parts.uploadButton, "Adding…", () => api.addVoice(name, sound));
    parts.upload.reset();
    this.#say(`${name} was ${message}.`);
    await this.#lookAgain();
  }
}

/**
 * Run work while its button is disabled and says what happens.
 *
 * @template T
 * @param {HTMLButtonElement} button
 * @param {string} label
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
async function busy(button, label, work) {
  const idle = button.textContent ?? "";
  button.disabled = true;
  write(button, label);
  try {
    return await work();
  } finally {
    button.disabled = false;
    write(button, idle);
  }
}

/**
 * @param {HTMLElement} row
 * @param {StoredDocument} document
 */
function updateDocument(row, { passages, size_bytes: sizeBytes }) {
  const count = passages === 1 ? "1 passage" : `${passages} passages`;
  write(found("small", HTMLElement, row), `${count}, ${Math.ceil(sizeBytes / 1000)} kB`);
}

/** @param {unknown} error */
function isForbidden(error) {
  return error instanceof api.ApiError && error.status === 403;
}

/** @param {keyof EstimateSettings} name */
function inputOf(name) {
  return found(`input[name="${name}"]`, HTMLInputElement, parts.etaRows);
}

/**
 * Return the sentence about the measured length of conversations.
 *
 * @param {Estimates} estimates
 * @param {NonNullable<Estimate["learnt"]>} task
 */
function measured(estimates, task) {
  const meanS = estimates[`ema_${task}_s`];
  const count = estimates[`ema_${task}_samples`];
  const least = estimates.ema_min_samples;
  if (!count || meanS === null) return "Nothing measured yet.";
  return `Measured: ${span(meanS)} from ${count}${count < least ? `; used from ${least} on` : ", in use"}.`;
}

/**
 * @param {HTMLElement} node
 * @param {App} app
 */
function updateApp(node, { enabled }) {
  found("button", HTMLElement, node).setAttribute("aria-checked", String(enabled));
}

/** @param {{ label: string }} tile */
function makeTile({ label }) {
  const made = element("div");
  made.append(element("dt", "", label), element("dd"));
  return made;
}

/** @param {WorkerView} worker */
function makeWorker({ worker_id: id }) {
  const made = element("tr");
  const head = element("th", "", id);
  head.scope = "row";
  made.append(
    head, cell("td", "", element("span", "badge")), cell("td", "", element("code")), element("td"), element("td", "number"),
    element("td", "number"), element("td", "number"), element("td"), cell("td", "", element("code")),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {WorkerView} worker
 */
function updateWorker(row, worker) {
  const [, status, session, task, since, placed, gpu, heard, address] = row.children;
  const badge = found("span", HTMLElement, status);
  write(badge, words(worker.status));
  badge.dataset.tone = TONES[worker.status] ?? "good";
  // Its own term, where that differs.
  badge.title = worker.state && worker.state !== worker.status ? `reported state: ${words(worker.state)}` : "";
  write(found("code", HTMLElement, session), worker.current_session_id ?? "–");
  write(task, TASKS[worker.current_request_type ?? ""] ?? "–");
  write(since, ago(worker.task_started_at));
  write(placed, String(worker.total_requests));
  write(gpu, worker.gpu_id === null ? "–" : String(worker.gpu_id));
  write(heard, worker.last_heartbeat ? `${ago(worker.last_heartbeat)} ago` : "never");
  write(found("code", HTMLElement, address), worker.host ? `${worker.host}:${worker.port}` : "–");
}

/**
 * @param {HTMLElement} row
 * @param {Ticket} ticket
 */
function updateTicket(row, ticket) {
  const [place, , task, waited, left] = row.children;
  write(place, String(ticket.position));
  write(task, TASKS[ticket.request_type ?? ""] ?? ticket.request_type ?? "a line");
  write(waited, span(ticket.wait_elapsed_s));
  write(left, ticket.estimated_wait_s === null ? "not known" : `about ${span(ticket.estimated_wait_s)}`);
}

/** @param {Usage} usage */
function renderUsage({ since, currency, models, calls }) {
  const prices = currency === null
    ? "Costs are not known: the deployment has no prices."
    : `In ${currency}, by the prices of the deployment; a cost is not known where one of them is missing.`;
  write(parts.usageWhat, `Since the server started, ${ago(since)} ago. ${prices}`);
  keyed(parts.models, models.map((model) => ({ ...model, id: JSON.stringify([model.stage, model.engine, model.model]) })),
    "id", makeModel, updateModel);
  keyed(parts.calls, calls, "call_id", makeCall, updateCall);
  parts.modelsTable.hidden = models.length === 0;
  parts.callsTable.hidden = calls.length === 0;
  parts.noUsage.hidden = models.length + calls.length > 0;
}

/** @param {ModelUse} model */
function makeModel({ engine, model }) {
  const made = element("tr");
  const head = element("th", "", engine);
  head.scope = "row";
  made.append(head, element("td", "", model || "–"), element("td"), cell("td", "number", element("span")));
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {ModelUse} model
 */
function updateModel(row, { amounts, cost, known_cost: known, unpriced }) {
  const [, , used, paid] = row.children;
  write(used, Object.entries(amounts).map(([kind, amount]) => amountOf(kind, amount)).join(", "));
  const price = found("span", HTMLElement, paid);
  write(price, costOf(cost, known));
  price.title = unpriced.length ? `no price for ${unpriced.map(words).join(", ")}` : "";
}

/** @param {CallUse} call */
function makeCall({ session_id: session, transport }) {
  const made = element("tr");
  const head = cell("th", "", element("code", "", session));
  head.scope = "row";
  made.append(
    head, element("td", "", transport), element("td", "number"), element("td", "number"), element("td", "number"),
    element("td", "number"),
  );
  return made;
}

/**
 * @param {HTMLElement} row
 * @param {CallUse} call
 */
function updateCall(row, { began_at: began, is_over: isOver, turns, last_cost: last, cost, known_cost: known }) {
  const [, , since, count, turn, paid] = row.children;
  write(since, `${ago(began)} ago${isOver ? "" : ", running"}`);
  write(count, String(turns));
  write(turn, costOf(last, null));
  write(paid, costOf(cost, known));
}

/**
 * Return a cost; of one that is not known, the part that is.
 *
 * @type {(cost: string | null, known: string | null) => string}
 */
const costOf = (cost, known) => cost ?? (Number(known) > 0 ? `not known, over ${known}` : "not known");

/** @type {(kind: string, amount: number) => string} */
function amountOf(kind, amount) {
  if (kind.endsWith("_ms")) return `${span(amount / 1000)} ${words(kind.slice(0, -3))}`;
  return `${amount.toLocaleString("en")} ${words(kind)}`;
}

/**
 * @template {"td" | "th"} K
 * @param {K} tag
 * @param {string} className
 * @param {Node} child
 */
function cell(tag, className, child) {
  const made = element(tag, className);
  made.append(child);
  return made;
}

/** @type {(name: string) => string} */
const words = (name) => name.replaceAll("_", " ");

/** @type {(input: HTMLInputElement) => boolean} */
const isGood = ({ valueAsNumber: value, max }) => value > 0 && value <= Number(max);

/**
 * Return the time since then by the clock of this machine, which may differ from the server's: never negative.
 *
 * @type {(at: string | null) => string}
 */
const ago = (at) => (at ? span(Math.max(0, (Date.now() - Date.parse(at)) / 1000)) : "–");

/** @param {number} bytes */
function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
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

new Page().begin();
