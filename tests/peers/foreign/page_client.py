"""A conversation of a client that runs in a page: Chromium with a bundle of the client.

``python -m tests.peers.foreign.page_client ADDRESS QUESTION STOP`` takes the address that the page gets and
two WAVs. ``PARLEY_PAGE`` names the folder of ``page.js`` and its styles. The page is one of another origin,
``PAGE_ORIGIN``, and reaches this machine alone. The program prints what the page has seen as one line of
JSON.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.async_api import Route, async_playwright

from parley.evals.foreign.programs import PAGE_ORIGIN, PAGE_VARIABLE
from tests.peers.foreign.player import LoopWatch, Player, gap_report

HTML = (
    '<!doctype html><meta charset="utf-8"><title>Client</title><link rel="stylesheet" href="/page.css">'
    '<div id="root" style="height: 100vh"></div><script src="/page.js"></script>'
)
TYPES = {".js": "text/javascript", ".css": "text/css", ".wav": "audio/wav"}
HOLD = "([address, recordings]) => window.hold(address, recordings)"
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
    # A page from elsewhere asks the user before it connects to this machine.
    "--disable-features=LocalNetworkAccessChecks",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)


async def main(address: str, recordings: Mapping[str, Path], page_folder: Path) -> dict[str, Any]:
    """Hold the conversation; return what the page has seen, with the report of its player."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed")
    hosts: set[str] = set()
    faults: list[str] = []

    async def serve(route: Route) -> None:
        name = route.request.url.removeprefix(f"{PAGE_ORIGIN}/")
        if not name:
            await route.fulfill(body=HTML, content_type="text/html")
            return
        file = recordings.get(name, page_folder / name)
        if file.is_file():
            await route.fulfill(path=file, content_type=TYPES[file.suffix])
        else:
            await route.fulfill(status=404)

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        try:
            page = await (await browser.new_context()).new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
            page.on("websocket", lambda socket: hosts.add(socket.url.split("/")[2]))
            await page.route(f"{PAGE_ORIGIN}/**", serve)
            await page.goto(f"{PAGE_ORIGIN}/")
            seen = await page.evaluate(HOLD, [address, [f"/{name}" for name in recordings]])
        finally:
            await browser.close()
    ours = {PAGE_ORIGIN.split("/")[2], address.split("/")[2]}
    seen["errors"] += [*faults, *(f"asked {host}" for host in sorted(hosts - ours))]
    return {**seen, **report(seen)}


def report(seen: dict[str, Any]) -> dict[str, Any]:
    """Take the page's sound and its pieces from what was seen; return the report of their gaps."""
    watch, player = LoopWatch(), Player()
    watch.stalls_s = [(begin / 1000, end / 1000) for begin, end in seen.pop("stalls_ms")]
    ends_s = [end / 1000 for end in seen.pop("ends_ms")]
    for at_ms, length_ms in seen.pop("pieces_ms"):
        while ends_s and ends_s[0] <= at_ms / 1000:
            ends_s.pop(0)
            player.over()
        player.take("answer", length_ms / 1000, at_ms / 1000)
    concealed = seen.pop("gaps_ms")
    if not concealed:
        return player.report(watch)
    gaps = [
        # Made up by the jitter buffer somewhere between two readings of its statistics.
        {
            "ms": round(ms, 1),
            "own_ms": min(round(ms, 1), round(watch.stalled_s(begin / 1000, end / 1000) * 1000, 1)),
        }
        for begin, end, ms in concealed
    ]
    return gap_report(gaps, watch)


if __name__ == "__main__":
    target, *files = sys.argv[1:]
    found = {Path(file).name: Path(file) for file in files}
    print(json.dumps(asyncio.run(main(target, found, Path(os.environ[PAGE_VARIABLE])))))
