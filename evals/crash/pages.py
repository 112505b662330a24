"""Calls of a page whose network is away for a while, or whose server is killed.

Each round opens the talk page in Chromium, presses Talk, and breaks the call at a random moment of the bot's
greeting: for ``DROP_S`` no packet passes (``evals.harness.network``), or the server is killed and started
again on its port. The page must go on by itself in the same session, and the words recorded as heard before
and those said after must be the reply, each word once. The gap is the time until the page shows that the bot
speaks again, from the return of the network or from the first answer of the new process to ``GET /health``.

The ``playwright`` package is imported by a run alone.
"""

import asyncio
import json
import random
import tempfile
import time
import wave
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.core.errors import PeerError
from parley.evals.crash.calls import GREETING, WITHIN_S, CallFindings, check_words, kill, when_ready
from parley.evals.harness.chromium import DEVICES, chromium
from parley.evals.harness.launcher import PRODUCT, command, free_port, started
from parley.evals.harness.network import Network
from parley.evals.harness.progress import Progress

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

DROP, KILL = "drop", "browser"
DROP_S = 5.0
# Into the greeting: after its first clause, before its last.
FIRST_S, LAST_S = 2.0, 12.0
RATE_HZ = 16_000
SPEAKS, RECONNECTS = "speaking", "reconnecting"
UNTIL_SHOWN = """state => new Promise((resolve) => {
  const look = () => document.body.dataset.state === state && (watch.disconnect(), resolve());
  const watch = new MutationObserver(look);
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
  look();
})"""


async def run_pages(calls: int, seed: int, *, breaks: str = DROP, store: str | None = None) -> CallFindings:
    """Run all rounds.

    Args:
        calls: number of calls, each broken once.
        seed: of the moments.
        breaks: ``DROP`` or ``KILL``.
        store: address of the session store; None for a new SQLite file.

    Raises:
        ConfigError: there is no Chromium, or no ``playwright``.
        PeerError: the first server does not start.
    """
    findings, dice = CallFindings(breaks, of="pages"), random.Random(seed)
    progress = Progress("calls", calls)
    with tempfile.TemporaryDirectory() as name:
        rounds = _Rounds(Path(name), findings, store)
        async with _browser(Path(name)) as browser:
            for _ in range(calls):
                try:
                    await rounds.one(browser, dice.uniform(FIRST_S, LAST_S), breaks)
                except (PeerError, TimeoutError) as error:
                    findings.details.append(f"call {findings.kills}: {error!r}")
                progress.step()
    return findings


class _Rounds:
    """Servers of a run, one after the other on one port and one store."""

    def __init__(self, folder: Path, findings: CallFindings, store: str | None) -> None:
        self._port, self._folder, self._findings = free_port(), folder, findings
        self._config, self._log = folder / "pages.yaml", folder / "server.log"
        self._environment = {"PARLEY_STORE_URL": store or f"sqlite:///{folder}/sessions.db"}
        self.url = f"http://127.0.0.1:{self._port}"
        deployment = {
            "bot": {"greeting": GREETING},
            "server": {"admission": "off", "sessions_per_minute": 10_000, "max_calls": 2},
        }
        self._config.write_text(json.dumps(deployment))

    async def one(self, browser: "Browser", after_s: float, breaks: str) -> None:
        """Hold one call, and break it so long after the bot's first word."""
        network = Network(self.url)
        async with network.running():
            page = await browser.new_page()
            try:
                async with self._server() as server:
                    await _call(page, network.url)
                    await asyncio.sleep(after_s)
                    broken_s = time.perf_counter()
                    self._findings.kills += 1
                    if breaks == DROP:
                        network.down()
                        await _reached(page, RECONNECTS)
                        await asyncio.sleep(max(0.0, broken_s + DROP_S - time.perf_counter()))
                        network.up()
                        await self._after(page, broken_s, time.perf_counter())
                        return
                    kill(server)
                await self._after_kill(page, broken_s)
            finally:
                await page.close()

    async def _after_kill(self, page: "Page", broken_s: float) -> None:
        begun_s = time.perf_counter()
        watching = asyncio.create_task(when_ready(self.url), name="crash.ready")
        # Until the page has noticed, it shows that the bot speaks.
        noticing = asyncio.create_task(_reached(page, RECONNECTS), name="crash.noticing")
        try:
            async with self._server():
                back_s = await watching
                await noticing
                self._findings.restarts_ms.append(round((back_s - begun_s) * 1000))
                await self._after(page, broken_s, back_s)
        finally:
            watching.cancel()
            noticing.cancel()

    async def _after(self, page: "Page", broken_s: float, back_s: float) -> None:
        """Wait until the bot speaks again, and check what it says."""
        await _reached(page, SPEAKS)
        spoke_s = time.perf_counter()
        findings = self._findings
        findings.went_on += 1
        findings.gaps_ms.append(round((spoke_s - back_s) * 1000))
        findings.silences_ms.append(round((spoke_s - broken_s) * 1000))
        await check_words(self.url, findings, lambda: page.is_closed())

    def _server(self) -> Any:
        arguments = command(PRODUCT, self._port, "--config", str(self._config))
        return started(arguments, self._port, self._log, environment=self._environment)


async def _call(page: "Page", url: str) -> None:
    """Open the page, press Talk, and wait for the bot's first word."""
    await page.goto(f"{url}/?raw=1")
    await page.locator('[data-role="talk"]').click()
    await _reached(page, SPEAKS)


async def _reached(page: "Page", state: str) -> None:
    """Wait until the page shows a state.

    The page itself reports it: a locator of Playwright looks every 500 ms only, which a gap of one second
    would be rounded up to.

    Raises:
        TimeoutError: it does not in time; with what the page shows.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            await page.evaluate(UNTIL_SHOWN, state)
    except TimeoutError as error:
        shown = await page.locator("body").get_attribute("data-state")
        notice = await page.locator('[data-role="notice"]').text_content()
        raise TimeoutError(f"the page is {shown!r}, not {state!r}, and says {notice!r}") from error


def _browser(folder: Path) -> AbstractAsyncContextManager["Browser"]:
    sound = _silence(folder / "silence.wav")
    return chromium(*DEVICES, f"--use-file-for-fake-audio-capture={sound}")


def _silence(path: Path) -> Path:
    """Write the sound of the microphone: a quiet room."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(bytes(RATE_HZ * 20))
    return path
