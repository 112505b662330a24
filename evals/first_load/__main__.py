"""``python -m evals.first_load``: open each page in a new headless Chromium; measure bytes and times.

In each round a new browser without a cache opens the page, once as fast as this machine is and once over an
emulated line. Bytes are those on the wire, with the headers of the responses. A page can be used from the
first click of Talk that it takes; a page without that button, from the state that its script shows. The click
is tried every few milliseconds from the beginning of the page. ``--url`` measures a server that runs already,
such as one of another version. The ``playwright`` package is imported by a run alone.
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from parley.core.errors import PeerError
from parley.evals.harness.chromium import DEVICES, chromium
from parley.evals.harness.command import machine, positive, quiet_log
from parley.evals.harness.launcher import server_at
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, run_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession

PAGES = ("/", "/omni", "/s/new", "/sessions", "/desk", "/admin")
WITHIN_S = 60
# A usual line of a home: 10 Mbit/s, and 50 ms from a request to the first byte of its answer.
LINE_BYTES_PER_S, LINE_MS = 1_250_000, 50
# Talk is clicked every few milliseconds until the page shows another state.
WATCH = """(() => {
  const look = () => {
    const at_ms = performance.now();
    const body = document.body;
    if (body) {
      const talk = document.querySelector('[data-role="talk"]');
      const begun = body.dataset.state;
      if (talk && begun === "ready") talk.click();
      if (body.dataset.state !== (talk ? "ready" : "loading") && body.dataset.state) {
        window.usable_ms = at_ms;
        return;
      }
    }
    setTimeout(look, 4);
  };
  look();
})()"""
TIMES = """async () => {
  while (window.usable_ms === undefined) await new Promise((resolve) => setTimeout(resolve, 20));
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  return { usable_ms: window.usable_ms, painted_ms: painted?.startTime ?? null };
}"""


@dataclass(frozen=True, slots=True)
class Load:
    """Page that was opened in a new browser.

    Attributes:
        wire_bytes: of all responses.
        requests: number of them.
        usable_ms: from the navigation to the first click that counts.
        painted_ms: from the navigation to the first text; None when it came after that.
    """

    wire_bytes: int
    requests: int
    usable_ms: float
    painted_ms: float | None


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.first_load", description="Open each page in a new browser without a cache."
    )
    root.add_argument("--url", help="server that runs already; by default a new one")
    root.add_argument("--pages", nargs="+", default=list(PAGES), help="paths of the pages")
    root.add_argument("--rounds", type=positive, default=5, help="browsers for each page and line")
    add_outputs(root)
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the JSON.

    Raises:
        ConfigError: there is no Chromium, or no ``playwright``.
        PeerError: the server does not start, or a page does not get usable.
    """
    with tempfile.TemporaryDirectory() as name:
        config, load = Path(name) / "pages.json", os.getloadavg()[0]
        config.write_text(json.dumps({"server": {"admission": "off", "max_calls": 100}}))
        async with server_at(arguments.url, "parley", config, Path(name) / "server.log") as server:
            found = await loads(
                server.url.replace("127.0.0.1", "localhost"), arguments.pages, arguments.rounds
            )
    return {
        "pages": {page: summarized(each) for page, each in found.items()},
        "rounds": arguments.rounds,
        "load_before": round(load, 2),
        "machine": machine(),
    }


async def loads(url: str, pages: Sequence[str], rounds: int) -> dict[str, dict[str, list[Load]]]:
    """Open pages of a server; return what was found by page and line.

    Raises:
        ConfigError: there is no Chromium, or no ``playwright``.
        PeerError: a page does not get usable.
    """
    found: dict[str, dict[str, list[Load]]] = {page: {"local": [], "line": []} for page in pages}
    progress = Progress("browsers", 2 * rounds * len(pages))
    for _ in range(rounds):
        for page, lines in found.items():
            for line, each in lines.items():
                async with chromium(*DEVICES) as browser:
                    each.append(await _load(browser, f"{url}{page}", is_slow=line == "line"))
                progress.step()
    return found


async def _load(browser: "Browser", url: str, *, is_slow: bool) -> Load:
    page = await browser.new_page()
    session = await page.context.new_cdp_session(page)
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    await session.send("Network.enable")
    if is_slow:
        await _slow_down(session)
    await page.add_init_script(WATCH)
    try:
        async with asyncio.timeout(WITHIN_S):
            response = await page.goto(url, wait_until="load")
            if response is None or not response.ok:
                raise PeerError(f"{url} was answered with {response and response.status}")
            times = await page.evaluate(TIMES)
    except TimeoutError as error:
        raise PeerError(f"{url} was not usable within {WITHIN_S} s") from error
    return Load(sum(sizes), len(sizes), times["usable_ms"], times["painted_ms"])


async def _slow_down(session: "CDPSession") -> None:
    await session.send(
        "Network.emulateNetworkConditions",
        {
            "offline": False,
            "latency": LINE_MS,
            "downloadThroughput": LINE_BYTES_PER_S,
            "uploadThroughput": LINE_BYTES_PER_S,
        },
    )


def summarized(lines: Mapping[str, Sequence[Load]]) -> dict[str, Any]:
    """Return the figures of a page: the largest size, medians and slowest times."""
    every = [load for each in lines.values() for load in each]
    times = {
        line: {
            "usable_ms": {
                "p50": round(median(load.usable_ms for load in each)),
                "max": round(max(load.usable_ms for load in each)),
            },
        }
        for line, each in lines.items()
    }
    painted = [load.painted_ms for load in lines["local"] if load.painted_ms is not None]
    return {
        "wire_kb": round(max(load.wire_bytes for load in every) / 1_000, 1),
        "requests": max(load.requests for load in every),
        "painted_ms": round(median(painted)) if painted else None,
        **times,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    head = ("page", "kB", "requests", "usable, ms (p50, slowest)", "over 10 Mbit/s and 50 ms")
    rows = [
        (
            f"`{page}`",
            each["wire_kb"],
            each["requests"],
            *(
                f"{each[line]['usable_ms']['p50']}, {each[line]['usable_ms']['max']}"
                for line in ("local", "line")
            ),
        )
        for page, each in result["pages"].items()
    ]
    return markdown(head, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    arguments = parser().parse_args(argv)

    def run() -> dict[str, Any]:
        quiet_log()
        return asyncio.run(measure(arguments))

    return run_command(arguments, run, table)


if __name__ == "__main__":
    raise SystemExit(main())
