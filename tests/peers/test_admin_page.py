"""Operators at the admin page: Chromium against a gateway with a real pool and workers."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.async_api import BrowserContext, Page, async_playwright, expect

from parley.configs.in_force import SettingInForce
from parley.core.call_events import TurnPriced
from parley.core.usage import Stage, Usage
from parley.models.omni import Preparation
from parley.models.retrieval.library import DocumentLibrary
from parley.recording.retention import RemovedRecordings, remove_session
from parley.recording.settings import RecordingSettings
from parley.recording.storage import RecordingStorage, RetentionRule
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.serving.gateway.admin.apps import AppDisabledError
from parley.serving.gateway.admin.failures_api import FailureSources
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.http.server import http_server
from parley.serving.gateway.settings import ServerTuning
from parley.serving.pool.pool import AssignmentRefused, Pool
from parley.serving.pool.settings import PoolTuning
from parley.serving.scheduler.types import RefusalReason, Task, WorkerRequest
from parley.telemetry.failure_log import CircuitReading, FailureLog
from parley.telemetry.prices import PriceRow, PriceSettings, PriceTable
from parley.telemetry.usage_ledger import CallLedger
from tests.fakes.embedder import WordCountEmbedder
from tests.fakes.omni import ScriptedOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV, worker
from tests.peers.operations_gateway import TOKEN, TOKEN_ENV, gateway
from tests.peers.test_browser import OFFLINE, Visit, chromium, open_page
from tests.peers.test_pool import at_worker, ready, settings, until
from tests.sounds import sound
from tests.unit.recording.test_retention import recorded

__all__ = ["chromium"]
pytestmark = pytest.mark.browser

IN_CALL = "aaaaaaaa-0000-4000-8000-000000000001"
WAITS = "bbbbbbbb-0000-4000-8000-000000000002"
LOOK_MS = 2_000
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    monkeypatch.delenv(TOKEN_ENV, raising=False)


@dataclass
class Site:
    """A gateway that a browser can reach."""

    address: str
    operations: Operations
    app: FastAPI

    @property
    def pool(self) -> Pool:
        assert self.operations.pool is not None
        return self.operations.pool


@dataclass(frozen=True)
class Recordings:
    """Recordings of a server whose daily run of retention is not due."""

    folder: Path
    storage: RecordingStorage
    settings: RecordingSettings = RecordingSettings()
    bucket: None = None
    uploads: None = None

    async def remove(self, session_id: str) -> RemovedRecordings:
        return await asyncio.to_thread(remove_session, self.folder, session_id)


@asynccontextmanager
async def site(
    folder: Path,
    *workers: str,
    documents: DocumentLibrary | None = None,
    prices: PriceTable | None = None,
    recordings: Recordings | None = None,
    **more: Any,
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as exits:
        served = [exits.enter_context(worker(ScriptedOmniHost(), name=name)) for name in workers]
        chosen = settings(served) if served else PoolTuning()
        pool = await exits.enter_async_context(Pool(chosen))
        if served:
            await ready(pool, len(served))
        operations = Operations.open(
            OperationsSettings(data_dir=folder), pool=pool, documents=documents, prices=prices, **more
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            bounds = ServerTuning(stop_requests_s=1, drain_s=0)
            app = gateway(operations, recordings=recordings)
            server = http_server(app, bounds)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield Site(f"http://localhost:{listener.getsockname()[1]}/admin", operations, app)
            finally:
                server.should_exit = True
                await serving


@asynccontextmanager
async def browser(path: str, **looks: object) -> AsyncIterator[BrowserContext]:
    async with async_playwright() as playwright:
        chromium_ = await playwright.chromium.launch(executable_path=path, args=list(OFFLINE))
        try:
            yield await chromium_.new_context(**looks)  # type: ignore[arg-type]
        finally:
            await chromium_.close()


@asynccontextmanager
async def operator(path: str, site: Site, *, logs_in: bool = True, **looks: object) -> AsyncIterator[Visit]:
    async with browser(path, **looks) as context:
        # The address that a server prints when it starts.
        visited = await open_page(context, f"{site.address}#token={TOKEN}" if logs_in else site.address)
        yield visited


@asynccontextmanager
async def one_in_a_call_one_waiting(pool: Pool) -> AsyncIterator["asyncio.Task[object]"]:
    placed = await pool.acquire(WorkerRequest("ticket of a call", IN_CALL, Task.OMNI_DUPLEX))
    engine = await asyncio.to_thread(at_worker, placed)
    await asyncio.to_thread(engine.prepare, Preparation())
    waits: asyncio.Task[object] = asyncio.create_task(
        pool.acquire(WorkerRequest("ticket that waits", WAITS, Task.AUDIO_DUPLEX))
    )
    await until(lambda: pool.waiting)
    try:
        yield waits
    finally:
        waits.cancel()
        with suppress(asyncio.CancelledError, AssignmentRefused):
            await waits
        await asyncio.to_thread(engine.cleanup)
        pool.release(placed, well=True)


async def test_a_caller_who_waits_for_a_line_is_shown_and_removed(chromium: str, tmp_path: Path) -> None:
    async with site(tmp_path) as served, operator(chromium, served) as person:
        calls = served.app.state.calls
        await person.state("live")
        await expect(person.part("no-queue")).to_be_visible()
        calls.queue.join("l_0", transport="webrtc")
        row = person.part("queue").locator("tr")
        await expect(row).to_have_text(re.compile(r"1\s*a caller \(webrtc\).*line\s*webrtc"))
        await row.get_by_role("button").click()
        await person.page.get_by_role("button", name="Remove").last.click()
        await expect(person.part("notice")).to_contain_text("a caller (webrtc) was removed from the queue")
        await expect(person.part("no-queue")).to_be_visible(timeout=1_000)
        assert calls.queued() == [] and person.complaints == []


async def test_the_page_is_in_german_where_that_is_chosen(chromium: str, tmp_path: Path) -> None:
    async with site(tmp_path) as served, operator(chromium, served) as person:
        await person.state("live")
        served.app.state.calls.queue.join("l_0", transport="webrtc")
        row = person.part("queue").locator("tr")
        await expect(row).to_contain_text("a caller (webrtc)")
        await person.part("language").select_option("de")
        await expect(row).to_contain_text("ein Anrufer (webrtc)")
        await expect(row.get_by_role("button")).to_have_text("Entfernen")
        await expect(person.page.locator("#queue-title")).to_have_text("Warteschlange")
        await expect(person.part("state")).to_have_text("Aktuell")
        await expect(person.part("tiles")).to_contain_text("wartend")
        await expect(person.part("eta")).to_contain_text("Noch nichts gemessen.")
        await row.get_by_role("button").click()
        await expect(person.part("confirm")).to_contain_text("aus der Warteschlange entfernen?")
        await person.page.keyboard.press("Escape")
        await person.page.reload()
        await expect(row).to_contain_text("ein Anrufer (webrtc)")
        await person.part("language").select_option("en")
        await expect(row).to_contain_text("a caller (webrtc)")
        assert person.complaints == []


async def test_a_question_asked_before_the_last_has_closed_is_answered_by_itself(
    chromium: str, tmp_path: Path
):
    async with site(tmp_path) as served, operator(chromium, served) as person:
        calls = served.app.state.calls
        await person.state("live")
        calls.queue.join("l_0", transport="webrtc")
        row = person.part("queue").locator("tr")
        await expect(row).to_have_count(1)
        await row.get_by_role("button").click()
        await expect(person.part("confirm")).to_be_visible()
        # The event of the first dialog's end is delivered when the second is open.
        await row.get_by_role("button").evaluate(
            "button => { document.querySelector('dialog').close('keep'); button.click(); }"
        )
        await person.page.get_by_role("button", name="Remove").last.click()
        await expect(person.part("notice")).to_contain_text("a caller (webrtc) was removed from the queue")
        assert calls.queued() == [] and person.complaints == []


async def picture(page: Page, name: str) -> None:
    if shots := os.environ.get("PARLEY_SCREENSHOTS"):
        await page.screenshot(path=f"{shots}/admin-{name}.png", full_page=True)


async def test_an_operator_sees_who_is_served_and_takes_someone_out_by_keyboard(
    chromium: str, tmp_path: Path
):
    async with site(tmp_path, "gpu0") as here, one_in_a_call_one_waiting(here.pool) as waits:
        async with operator(chromium, here) as person:
            await person.state("live")
            # The page is live a moment before it has drawn what it received.
            rows = person.part("workers").locator("tr")
            await expect(rows).to_have_count(1)
            [shown] = await rows.all_inner_texts()
            assert re.match(
                r"gpu0\s+duplex active\s+aaaaaaaa\s+omni duplex\s+\d+ s\s+1\s+–\s+\d s ago\s+127", shown
            )
            row = person.part("queue").locator("tr")
            await expect(row).to_have_text(re.compile(r"1\s*bbbbbbbb\s*audio duplex"))
            await expect(row).to_contain_text("about 1 min")
            await expect(person.part("tiles")).to_contain_text("waiting")
            await expect(person.part("exposure")).to_have_text("Calls need no key.")
            # Without client keys a whole id is enough to use the session.
            content = await person.page.content()
            assert IN_CALL not in content and WAITS not in content

            await row.get_by_role("button").focus()
            await person.page.keyboard.press("Enter")
            await expect(person.part("confirm")).to_be_visible()
            # Enter alone would keep the value.
            await expect(person.page.get_by_role("button", name="Keep")).to_be_focused()
            await person.page.keyboard.press("Escape")
            await expect(person.part("confirm")).to_be_hidden()
            assert not waits.done()

            await row.get_by_role("button").press("Enter")
            await person.page.keyboard.press("Tab")
            await person.page.keyboard.press("Enter")
            with pytest.raises(AssignmentRefused) as refused:
                await asyncio.wait_for(waits, 3)
            assert refused.value.reason is RefusalReason.CANCELLED
            await expect(person.part("no-queue")).to_be_visible(timeout=1_000)
            await expect(person.part("notice")).to_contain_text("bbbbbbbb was removed from the queue")
            await expect(person.page.locator("#queue-title")).to_be_focused()
            assert person.complaints == []


async def test_the_page_follows_what_happens(chromium: str, tmp_path: Path):
    async with site(tmp_path, "gpu0") as here, operator(chromium, here) as person:
        await expect(person.part("workers")).to_contain_text("idle")
        async with one_in_a_call_one_waiting(here.pool):
            await expect(person.part("workers")).to_contain_text("duplex active")
            await expect(person.part("queue")).to_contain_text("bbbbbbbb")
        await expect(person.part("workers")).to_contain_text("idle")
        await expect(person.part("no-queue")).to_be_visible()


async def test_an_app_is_closed_by_keyboard(chromium: str, tmp_path: Path):
    async with site(tmp_path) as here, operator(chromium, here) as person:
        switch = person.page.get_by_role("switch", name="Omni full duplex")
        await expect(switch).to_have_attribute("aria-checked", "true")
        await switch.focus()
        await person.page.keyboard.press("Space")
        await expect(switch).to_have_attribute("aria-checked", "false")
        with pytest.raises(AppDisabledError, match="omni"):
            here.operations.apps.check("omni")
        # The button is the same one after the next refresh, with the focus.
        await asyncio.sleep(1.2 * LOOK_MS / 1_000)
        await expect(switch).to_be_focused()
        await person.page.reload()
        await expect(switch).to_have_attribute("aria-checked", "false")
        assert person.complaints == []


async def test_estimates_are_set_and_typing_survives_a_look(chromium: str, tmp_path: Path):
    async with site(tmp_path, "gpu0") as here, operator(chromium, here) as person:
        here.pool.eta.ended_well(Task.OMNI_DUPLEX, 42)
        field = person.page.get_by_label("Omni duplex, s")
        save = person.page.get_by_role("button", name="Save")
        await expect(field).to_have_value("90")
        await expect(save).to_be_disabled()
        await field.fill("0")
        await person.page.get_by_label("Chat, s").focus()
        await expect(person.part("eta")).to_contain_text("Measured: 42 s from 1; used from 3 on")
        await expect(field).to_have_value("0")
        await expect(field).to_have_attribute("aria-invalid", "true")
        await save.click()
        await expect(person.part("notice")).to_contain_text(
            "Omni duplex, s: enter a number above 0 and at most 86,400"
        )
        assert here.pool.eta.settings.eta_omni_duplex_s == 90
        await field.fill("33.5")
        await save.click()
        await expect(person.part("notice")).to_contain_text("The estimates are saved")
        assert here.pool.eta.settings.eta_omni_duplex_s == 33.5
        assert here.pool.eta.settings.eta_chat_s == 15
        await expect(save).to_be_disabled()
        await field.fill("50")
        await person.page.get_by_role("button", name="Undo").click()
        await expect(field).to_have_value("33.5")
        assert person.complaints == []


async def test_the_cost_of_calls_is_shown_and_what_is_not_known_of_it_is_said(chromium: str, tmp_path: Path):
    prices = PriceTable(
        PriceSettings(currency="EUR", rows=(PriceRow(engine="deepgram", heard_per_minute=1),))
    )
    async with site(tmp_path, prices=prices) as here, operator(chromium, here) as person:
        await expect(person.part("no-usage")).to_be_visible()
        events = CallEvents()
        entry = CallLedger(events, ObservedCall(IN_CALL, "call", "webrtc", "cascade"), here.operations.ledger)
        heard = prices.priced(Stage.STT, "deepgram", "nova-3", Usage(heard_ms=15_000))
        spoken = prices.priced(Stage.TTS, "cartesia", "sonic", Usage(characters=1_200))
        events.publish(TurnPriced(1, 0, (heard,)))
        models, calls = person.part("models"), person.part("calls")
        await expect(models.locator("tr")).to_have_text("deepgramnova-315 s heard0.25")
        await expect(calls.locator("tr")).to_contain_text("aaaaaaaawebrtc")
        await expect(calls.locator("td").nth(2)).to_have_text("1")
        await expect(calls.locator("td").nth(4)).to_have_text("0.25")
        events.publish(TurnPriced(2, 1, (spoken,)))
        entry.close()
        await expect(models.locator("tr").nth(1)).to_have_text("cartesiasonic1,200 charactersnot known")
        await expect(calls.locator("td").nth(3)).to_have_text("not known")
        await expect(calls.locator("td").nth(4)).to_have_text("not known, over 0.25")
        await expect(person.part("usage-what")).to_contain_text("In EUR, by the prices of the deployment")
        await picture(person.page, "usage")
        assert person.complaints == []


async def test_a_voice_is_added_heard_and_deleted(chromium: str, tmp_path: Path):
    file = tmp_path / "Anna Müller.mp3"
    file.write_bytes(sound("mp3", 1.0))
    async with site(tmp_path / "data") as here, operator(chromium, here) as person:
        await expect(person.part("no-voices")).to_be_visible()
        await person.part("voice-file").set_input_files(str(file))
        await expect(person.part("voice-name")).to_have_value("Anna Müller")
        await person.page.get_by_role("button", name="Add voice").click()
        voice = person.part("voices").locator("li")
        await expect(voice).to_contain_text("Anna Müller")
        assert here.operations.voices is not None
        assert [each.name for each in here.operations.voices.all()] == ["Anna Müller"]
        played = await voice.locator("audio").evaluate(
            "async (sound) => { sound.muted = true; await sound.play(); return sound.duration; }"
        )
        assert played == pytest.approx(1, abs=0.1)
        await picture(person.page, "voices")

        (tmp_path / "words.mp3").write_text("no audio")
        await person.part("voice-file").set_input_files(str(tmp_path / "words.mp3"))
        await person.page.get_by_role("button", name="Add voice").click()
        await expect(person.part("notice")).to_contain_text("the file is not audio in a supported format")

        await voice.get_by_role("button", name="Delete Anna Müller").click()
        await person.part("confirm-go").click()
        await expect(person.part("no-voices")).to_be_visible(timeout=3_000)
        assert here.operations.voices.all() == []
        # Only the refused upload is in the console of the browser.
        assert [line for line in person.complaints if "400 (Bad Request)" not in line] == []


async def test_no_one_sees_anything_before_they_have_said_who_they_are(chromium: str, tmp_path: Path):
    async with (
        site(tmp_path, "gpu0") as here,
        operator(chromium, here, logs_in=False) as person,
    ):
        await person.state("locked")
        await expect(person.part("token-env")).to_contain_text(TOKEN_ENV)
        await expect(person.part("open")).to_be_hidden()
        await expect(person.part("token")).to_be_focused()
        await picture(person.page, "locked")
        await person.page.keyboard.type("not it")
        await person.page.keyboard.press("Enter")
        await expect(person.part("notice")).to_contain_text("the token is wrong")
        await person.part("token").fill(TOKEN)
        await person.page.keyboard.press("Enter")
        await person.state("live")
        await expect(person.part("workers")).to_contain_text("127.0.0.1")
        # No script can read the login cookie, and it survives a visit to another site.
        assert await person.page.evaluate("document.cookie") == ""
        await person.page.reload()
        await person.state("live")
        await person.part("log-out").click()
        await person.state("locked")
        await person.page.reload()
        await person.state("locked")
        assert [line for line in person.complaints if "403 (Forbidden)" not in line] == []


async def test_a_document_is_added_and_deleted_and_the_folder_read_again(chromium: str, tmp_path: Path):
    folder = tmp_path / "knowledge"
    folder.mkdir()
    (folder / "hours.md").write_text("# Guide\n\n## Hours\n\nBranches open at nine.\n")
    library = DocumentLibrary(folder, WordCountEmbedder())
    fees = tmp_path / "Fees & more.md"
    fees.write_text("# Fees\n\n## Wire\n\nA wire costs twenty dollars.\n\nAbroad it costs forty.\n")
    async with site(tmp_path / "data", documents=library) as here, operator(chromium, here) as person:
        shown = person.part("documents").locator("li")
        await expect(shown).to_have_text([re.compile(r"hours\.md\s*1 passage, 1 kB")])
        await person.part("document-file").set_input_files(str(fees))
        await person.page.get_by_role("button", name="Add document").click()
        await expect(shown).to_have_count(2)
        await expect(shown.first).to_contain_text("Fees & more.md2 passages")
        await expect(person.part("documents-what")).to_contain_text("2 files (3 passages)")
        await picture(person.page, "documents")

        # A file that cannot be read changes nothing, and the page says why.
        (tmp_path / "broken.pdf").write_bytes(b"no pdf")
        await person.part("document-file").set_input_files(str(tmp_path / "broken.pdf"))
        await person.page.get_by_role("button", name="Add document").click()
        await expect(person.part("notice")).to_contain_text("cannot read the document broken.pdf")

        # One that is too large is not sent at all.
        huge = tmp_path / "huge.pdf"
        with huge.open("wb") as file:
            file.truncate(200_000_000)
        await person.part("document-file").set_input_files(str(huge))
        await person.page.get_by_role("button", name="Add document").click()
        await expect(person.part("notice")).to_contain_text("huge.pdf has 200 MB; the limit is 20 MB")

        await shown.first.get_by_role("button", name="Delete Fees & more.md").click()
        await person.part("confirm-go").click()
        await expect(shown).to_have_count(1)
        (folder / "copied.txt").write_text("Copied into the folder.")
        await person.page.get_by_role("button", name="Read the folder again").click()
        await expect(shown.first).to_contain_text("copied.txt")
        # Only the refused upload is in the console of the browser.
        assert [line for line in person.complaints if "422" not in line] == []
        assert sorted(path.name for path in folder.iterdir()) == ["copied.txt", "hours.md"]


async def test_failures_storage_and_settings_are_shown_and_retention_is_run(chromium: str, tmp_path: Path):
    old = recorded(tmp_path, days_ago=31)
    log = FailureLog()
    log.add("failover", "llm", engine="anthropic", successor="documents", reason="timeout")
    recordings = Recordings(tmp_path, RecordingStorage(tmp_path, RetentionRule(retention_days=30)))
    more = {
        "failures": FailureSources(log, lambda: [CircuitReading("llm", "anthropic", "open", 30_000)]),
        "in_force": lambda: [
            SettingInForce("server.drain_s", "5.0", "20.0", True, "time to go on (s)"),
            SettingInForce("server.max_calls", "4", "", False, "calls at a time"),
        ],
    }
    async with site(tmp_path, recordings=recordings, **more) as served, operator(chromium, served) as person:
        await expect(person.part("circuits").locator("tr")).to_contain_text(["anthropicllmnot usedin 30 s"])
        failure = person.part("failures").locator("tr")
        await expect(failure).to_contain_text("anthropic → documents")
        await expect(failure).to_contain_text("timeout")

        await expect(person.part("storage-facts")).to_contain_text("1 call of 1 session, 1.0 MB")
        await expect(person.part("storage-next")).to_contain_text(old.name[:8])
        await expect(person.part("remove-now")).to_be_disabled()
        await person.part("dry-run").click()
        await expect(person.part("retention-run")).to_contain_text("would remove 1 session, 1.0 MB")
        await person.part("remove-now").click()
        await person.part("confirm-go").click()
        await expect(person.part("retention-run")).to_contain_text("removed 1 session")
        await expect(person.part("storage-facts")).to_contain_text("0 calls of 0 sessions")
        assert not old.exists()

        await person.part("settings").locator("summary").click()
        rows = person.part("settings-rows").locator("tr")
        await expect(rows).to_have_text(["server.drain_s5.020.0"])
        await person.part("settings-given").uncheck()
        await person.part("settings-search").fill("calls TIME")
        await expect(rows).to_contain_text(["server.max_calls"])
        assert person.complaints == []


async def test_a_server_without_documents_shows_none(chromium: str, tmp_path: Path):
    async with site(tmp_path) as here, operator(chromium, here) as person:
        await person.state("live")
        await expect(person.part("documents-card")).to_be_hidden()
        assert person.complaints == []


async def test_the_printed_address_logs_in_and_is_not_kept(chromium: str, tmp_path: Path):
    async with site(tmp_path) as here, operator(chromium, here) as person:
        await person.state("live")
        assert TOKEN not in await person.page.evaluate("location.href")
        await person.page.goto(f"{here.address}?again#token=wrong")
        # An existing login stays valid.
        await person.state("live")


@pytest.mark.paired
async def test_a_page_that_no_one_sees_asks_for_nothing(chromium: str, tmp_path: Path):
    async with site(tmp_path) as here, operator(chromium, here) as person:
        asked: list[str] = []
        person.page.on("request", lambda request: asked.append(request.url))
        await person.state("live")
        await asyncio.sleep(1.2 * LOOK_MS / 1_000)
        assert asked
        await person.page.evaluate(HIDE, True)
        await person.state("paused", within_s=1)
        asked.clear()
        await asyncio.sleep(2.5 * LOOK_MS / 1_000)
        assert asked == []
        await person.page.evaluate(HIDE, False)
        await person.state("live", within_s=1)
        assert asked


async def test_a_server_that_goes_away_is_said_and_found_again(chromium: str, tmp_path: Path):
    async with site(tmp_path) as here, operator(chromium, here) as person:
        await person.state("live")
        await person.page.route("**/api/queue", lambda route: route.abort())
        await person.state("away")
        await expect(person.part("notice")).to_contain_text("The server cannot be reached")
        # The last known state stays visible.
        await expect(person.part("open")).to_be_visible()
        await person.page.unroute("**/api/queue")
        await person.state("live")
        await expect(person.part("notice")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1_200, 390])
async def test_the_page_fits_its_window(chromium: str, tmp_path: Path, scheme: str, width: int):
    looks = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    async with site(tmp_path, "gpu0", "gpu1") as here:
        assert here.operations.voices is not None
        await here.operations.voices.add("Anna", sound("wav", 2.0))
        first, second = [
            await here.pool.acquire(WorkerRequest(f"call {number}", IN_CALL, Task.OMNI_DUPLEX))
            for number in range(2)
        ]
        waits = asyncio.create_task(here.pool.acquire(WorkerRequest("waits", WAITS, Task.AUDIO_DUPLEX)))
        async with operator(chromium, here, **looks) as person:
            await person.state("live")
            await expect(person.part("queue")).to_contain_text("bbbbbbbb")
            await picture(person.page, f"{scheme}-{width}")
            wide_px = await person.page.evaluate("document.documentElement.scrollWidth")
            assert wide_px <= width
            assert person.complaints == []
        waits.cancel()
        for placed in (first, second):
            here.pool.release(placed, well=True)
