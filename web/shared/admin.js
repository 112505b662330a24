// The operator's page. Looks at the server every two seconds while somebody can see it; shows, switches, takes out of the
// queue, sets estimates, keeps voices. What is typed and what has the focus survive a look.

import * as api from "./admin_api.js";
import { element, part, showNotice, write } from "./element.js";

const LOOK_MS = 2_000;
// For a server that is away: not every two seconds.
const MOST_LOOK_MS = 15_000;
const NOTICE_MS = 8_000;

const STATES = { loading: "Loading", locked: "Locked", live: "Live", paused: "Paused", away: "Server unreachable" };
const TONES = { idle: "", loading: "wait", error: "bad", offline: "bad" };
const TASKS = { chat: "chat", half_duplex_audio: "half duplex", audio_duplex: "audio duplex", omni_duplex: "omni duplex" };
const ESTIMATES = [
  { name: "eta_chat_s", learnt: "chat", label: "Chat, s", most: 86_400 },
  { name: "eta_half_duplex_s", learnt: "half_duplex", label: "Half duplex, s", most: 86_400 },
  { name: "eta_audio_duplex_s", learnt: "audio_duplex", label: "Audio duplex, s", most: 86_400 },
  { name: "eta_omni_duplex_s", learnt: "omni_duplex", label: "Omni duplex, s", most: 86_400 },
  { name: "ema_alpha", label: "Weight of the newest conversation", most: 1, hint: "Share of the newest conversation in the measured length; 1 ignores all earlier ones." },
];

const parts = Object.fromEntries(
  [
    "state", "notice", "locked", "login", "token", "token-env", "log-out", "open", "tiles", "exposure", "apps", "workers", "no-workers",
    "queue", "queue-table", "no-queue", "eta", "eta-rows", "voices", "no-voices", "upload", "voice-file", "voice-name", "upload-button",
    "confirm", "confirm-title", "confirm-text", "confirm-go",
  ].map((role) => [role, part(role)]),
);

class Page {
  #timer = 0;
  #noticeTimer = 0;
  #failures = 0;
  // A look that began before something was changed shows what was: it is dropped.
  #epoch = 0;
  #set = {};

  begin() {
    this.#makeEstimates();
    // The address that the server prints when it starts has it in the fragment, which is sent to no server.
    const offered = new URLSearchParams(location.hash.slice(1)).get("token");
    if (offered) history.replaceState(null, "", location.pathname + location.search);
    parts.login.addEventListener("submit", (event) => this.#handle(event, () => this.#logIn(parts.token.value)));
    parts["log-out"].addEventListener("click", () => this.#do(() => this.#logOut()));
    parts.eta.addEventListener("submit", (event) => this.#handle(event, () => this.#saveEstimates()));
    parts.eta.addEventListener("reset", (event) => this.#handle(event, () => this.#showEstimates(true)));
    parts.eta.addEventListener("input", () => this.#marksEstimates());
    parts.upload.addEventListener("submit", (event) => this.#handle(event, () => this.#upload()));
    parts["voice-file"].addEventListener("change", () => this.#proposeName());
    document.addEventListener("visibilitychange", () => this.#onVisibility());
    if (offered) this.#do(() => this.#logIn(offered)).then(() => document.body.dataset.state === "loading" && this.#enter());
    else this.#enter();
  }

  // Looking.

  async #enter() {
    clearTimeout(this.#timer);
    try {
      const { is_operator: isOperator, token_env: tokenEnv } = await api.operator();
      this.#failures = 0;
      if (isOperator) {
        this.#show("live");
        await this.#look();
      } else {
        write(parts["token-env"], tokenEnv);
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
      if (error.status === 403) {
        await this.#enter();
        return;
      }
      this.#away(error);
    }
    if (!document.hidden) this.#timer = setTimeout(() => this.#look(), this.#waitMs());
  }

  /** What is on its way shows what was before a change: another look begins at once. */
  #lookAgain() {
    this.#epoch += 1;
    return this.#look();
  }

  #waitMs() {
    return Math.min(LOOK_MS * 2 ** Math.max(0, this.#failures - 1), MOST_LOOK_MS);
  }

  #away(error) {
    this.#failures += 1;
    this.#show("away");
    this.#say(error.message, { bad: true });
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

  #show(state) {
    const was = document.body.dataset.state;
    document.body.dataset.state = state;
    write(parts.state, STATES[state]);
    parts.open.hidden = state === "locked" || state === "loading" || (state === "away" && was === "loading");
    parts.locked.hidden = state !== "locked";
    parts["log-out"].hidden = state === "locked";
    if (was === "away" && state === "live") this.#say("");
  }

  #lock() {
    this.#epoch += 1;
    this.#show("locked");
    parts.token.focus();
  }

  // Doing.

  #handle(event, work) {
    event.preventDefault();
    this.#do(work);
  }

  async #do(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      this.#say(error.message, { bad: true });
      if (error.status === 403 && document.body.dataset.state !== "locked") await this.#enter();
    }
  }

  #say(text, { bad = false } = {}) {
    clearTimeout(this.#noticeTimer);
    showNotice(parts.notice, text, { bad });
    if (text && !bad) this.#noticeTimer = setTimeout(() => showNotice(parts.notice, ""), NOTICE_MS);
  }

  async #confirmed(title, text, go) {
    write(parts["confirm-title"], title);
    write(parts["confirm-text"], text);
    write(parts["confirm-go"], go);
    parts.confirm.returnValue = "keep";
    parts.confirm.showModal();
    await new Promise((resolve) => parts.confirm.addEventListener("close", resolve, { once: true }));
    return parts.confirm.returnValue === "go";
  }

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

  // Showing.

  #render({ status, workers, queue, apps, estimates, voices }) {
    this.#renderTiles(status);
    write(parts.exposure, status.exposure ?? "");
    keyed(parts.apps, apps, "app_id", (app) => this.#app(app), updateApp);
    keyed(parts.workers, workers, "worker_id", makeWorker, updateWorker);
    parts["no-workers"].hidden = workers.length > 0;
    parts.workers.closest(".scroll").hidden = workers.length === 0;
    keyed(parts.queue, queue, "ticket_id", (ticket) => this.#ticket(ticket), updateTicket);
    parts["no-queue"].hidden = queue.length > 0;
    parts["queue-table"].hidden = queue.length === 0;
    this.#set = estimates;
    this.#showEstimates(false);
    keyed(parts.voices, voices, "id", (voice) => this.#voice(voice), () => {});
    parts["no-voices"].hidden = voices.length > 0;
  }

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
    // Without workers there is nothing to say of them.
    const shown = status.total_workers ? tiles : tiles.slice(0, 2);
    keyed(parts.tiles, shown, "key", makeTile, ({ children: [, value] }, tile) => {
      write(value, String(tile.value));
      value.parentElement.classList.toggle("bad", tile.key === "down" && tile.value > 0);
    });
  }

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

  #ticket({ ticket_id: id, kind, session_id: session, transport }) {
    // A caller who waits for a line has no session yet.
    const caller = session ?? `a caller (${transport})`;
    const made = element("tr");
    made.append(
      element("td", "number"),
      session === null ? element("th", "", caller) : cell("th", "", element("code", "", session)),
      element("td"),
      element("td", "number"),
      element("td", "number"),
      element("td", "", kind),
      element("td", "", transport ?? "–"),
    );
    made.children[1].scope = "row";
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
      parts["eta-rows"].append(row);
    }
  }

  /** What is set, unless something else is typed at the moment. */
  #showEstimates(anyway) {
    for (const { name, learnt } of ESTIMATES) {
      const input = parts.eta.elements[name];
      const value = String(this.#set.config?.[name] ?? "");
      const isUntouched = input.value === (input.dataset.set ?? "") && document.activeElement !== input;
      if (anyway || isUntouched) input.value = value;
      input.dataset.set = value;
      if (!learnt) continue;
      const meanS = this.#set[`ema_${learnt}_s`];
      const count = this.#set[`ema_${learnt}_samples`];
      const least = this.#set.ema_min_samples;
      let note = "Nothing measured yet.";
      if (count) note = `Measured: ${span(meanS)} from ${count}${count < least ? `; used from ${least} on` : ", in use"}.`;
      write(document.getElementById(`${name}-note`), note);
    }
    this.#marksEstimates();
  }

  #marksEstimates() {
    const inputs = ESTIMATES.map(({ name }) => parts.eta.elements[name]);
    const isChanged = inputs.some((input) => input.value !== input.dataset.set);
    for (const input of inputs) input.setAttribute("aria-invalid", String(!isGood(input)));
    for (const button of parts.eta.querySelectorAll("button")) button.disabled = !isChanged;
  }

  async #saveEstimates() {
    const changed = {};
    for (const { name, label, most } of ESTIMATES) {
      const input = parts.eta.elements[name];
      if (!isGood(input)) {
        input.focus();
        this.#say(`${label}: enter a number above 0 and at most ${most.toLocaleString("en")}.`, { bad: true });
        return;
      }
      if (input.value !== input.dataset.set) changed[name] = input.valueAsNumber;
    }
    this.#set = await api.setEstimates(changed);
    this.#showEstimates(true);
    this.#say("The estimates are saved, and waiting callers are informed.");
    await this.#lookAgain();
  }

  // Voices.

  #proposeName() {
    const [file] = parts["voice-file"].files;
    if (file && !parts["voice-name"].value) parts["voice-name"].value = file.name.replace(/\.[^.]*$/, "").slice(0, 100);
  }

  async #upload() {
    const [file] = parts["voice-file"].files;
    const name = parts["voice-name"].value.trim();
    if (!file || !name) return;
    const button = parts["upload-button"];
    button.disabled = true;
    write(button, "Adding…");
    try {
      const { message } = await api.addVoice(name, await dataUrl(file));
      parts.upload.reset();
      this.#say(`${name} was ${message}.`);
    } finally {
      button.disabled = false;
      write(button, "Add voice");
    }
    await this.#lookAgain();
  }
}

function updateApp({ children: [, button] }, { enabled }) {
  button.setAttribute("aria-checked", String(enabled));
}

function makeTile({ label }) {
  const made = element("div");
  made.append(element("dt", "", label), element("dd"));
  return made;
}

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

function updateWorker({ children: [, status, session, task, since, placed, gpu, heard, address] }, worker) {
  const badge = status.firstChild;
  write(badge, words(worker.status));
  badge.dataset.tone = TONES[worker.status] ?? "good";
  // Its own word, where that says more.
  badge.title = worker.state && worker.state !== worker.status ? `reported state: ${words(worker.state)}` : "";
  write(session.firstChild, worker.current_session_id ?? "–");
  write(task, TASKS[worker.current_request_type] ?? "–");
  write(since, ago(worker.task_started_at));
  write(placed, String(worker.total_requests));
  write(gpu, worker.gpu_id === null ? "–" : String(worker.gpu_id));
  write(heard, worker.last_heartbeat ? `${ago(worker.last_heartbeat)} ago` : "never");
  write(address.firstChild, worker.host ? `${worker.host}:${worker.port}` : "–");
}

function updateTicket({ children: [place, , task, waited, left] }, ticket) {
  write(place, String(ticket.position));
  write(task, TASKS[ticket.request_type] ?? ticket.request_type ?? "a line");
  write(waited, span(ticket.wait_elapsed_s));
  write(left, ticket.estimated_wait_s === null ? "not known" : `about ${span(ticket.estimated_wait_s)}`);
}

/** Shows items as children that stay what they are: what has the focus, or plays, is not made anew. */
function keyed(parent, items, name, make, update) {
  const left = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const key = String(item[name]);
    const node = left.get(key) ?? make(item);
    left.delete(key);
    node.dataset.key = key;
    update(node, item);
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  for (const gone of left.values()) {
    // Whoever is there by keyboard goes on from the heading, and not from the top of the page.
    if (gone.contains(document.activeElement)) parent.closest("section").querySelector("h2").focus();
    gone.remove();
  }
}

function cell(tag, className, child) {
  const made = element(tag, className);
  made.append(child);
  return made;
}

const words = (name) => name.replaceAll("_", " ");

const isGood = ({ valueAsNumber: value, max }) => value > 0 && value <= Number(max);

/** By the clock of this machine, which may differ from the server's: never less than nothing. */
const ago = (at) => (at ? span(Math.max(0, (Date.now() - Date.parse(at)) / 1000)) : "–");

function span(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new api.ApiError("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}

new Page().begin();
