"""``python -m evals.viewer``: open a session of an hour in headless Chromium, and scroll it.

A call of a minute is held, recorded and repeated until it has the length (``long_session``). A server then
shows it. In each round a new browser without a cache opens the page; measured are the times from the
navigation to the conversation, and to the recording with its waveform, its transcript and the length of its
sound. Then each long part of the page is scrolled as with a wheel, and the frames of the page meanwhile are
counted, on a screen of 60 frames a second. The ``playwright`` package is imported by a run alone.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.core.errors import PeerError
from parley.evals.harness.chromium import chromium
from parley.evals.harness.command import machine, positive, quiet_log
from parley.evals.harness.launcher import running
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, run_command
from parley.evals.viewer.long_session import LongSession, make_long_session

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

HOUR_S = 3_600
WITHIN_MS = 60_000
SCROLL_PX, SCROLL_PX_PER_S = 6_000, 2_000
WIDTH_PX, HEIGHT_PX = 1_280, 800
# Long parts of the page: the fold that has to be open, the element, and whether it is scrolled sideways.
PARTS: Mapping[str, tuple[str, str, bool]] = {
    "conversation": ("", "conversation", False),
    "transcript of the recording": ("recordings", "captions", False),
    "perception": ("lanes", "lanes-rows", True),
}
# The player has the length of the sound, and the canvas is drawn.
SHOWN = """async () => {
  const part = (name) => document.querySelector(`[data-role="${name}"]`);
  const canvas = part("waveform");
  const isShown = () =>
    part("replay").readyState >= 1 && part("captions").childElementCount > 0 && canvas.width > 300;
  while (!isShown()) await new Promise(requestAnimationFrame);
}"""
COUNT_FRAMES = """() => {
  window.frames_ms = [];
  window.counting = true;
  const count = (at_ms) => {
    window.frames_ms.push(at_ms);
    if (window.counting) requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
}"""
FRAMES = "() => { window.counting = false; return window.frames_ms; }"


@dataclass
class Found:
    """Figures of all rounds.

    Attributes:
        ready_s: from the navigation to the conversation.
        shown_s: from the navigation to the recording.
        frames_per_s: of each part, while it was scrolled.
        longest_ms: longest time between two frames of each part.
    """

    ready_s: list[float] = field(default_factory=list)
    shown_s: list[float] = field(default_factory=list)
    frames_per_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PARTS})
    longest_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PARTS})


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.viewer", description="Open a long session in the viewer, and scroll it."
    )
    root.add_argument("--seconds", type=positive, default=HOUR_S, help="length of the call")
    root.add_argument("--rounds", type=positive, default=5, help="browsers that open it")
    root.add_argument("--seed", type=int, default=1, help="of the call")
    add_outputs(root)
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the JSON.

    Raises:
        ConfigError: there is no Chromium, or no ``playwright``.
        PeerError: a server does not start, or the page does not show the session.
    """
    with tempfile.TemporaryDirectory() as name:
        session = await make_long_session(Path(name), arguments.seconds, arguments.seed)
        found, load = Found(), os.getloadavg()[0]
        progress = Progress("rounds", arguments.rounds)
        async with running("parley", session.config, session.log) as server:
            for _ in range(arguments.rounds):
                async with chromium() as browser:
                    await _round(browser, server.url.replace("127.0.0.1", "localhost"), session, found)
                progress.step()
    return {**summarized(found), **_facts(session), "load_before": round(load, 2), "machine": machine()}


def summarized(found: Found) -> dict[str, Any]:
    """Return the figures: the slowest round of each."""
    return {
        "ready_s": round(max(found.ready_s), 2),
        "shown_s": round(max(found.shown_s), 2),
        "frames_per_s": {name: round(min(each), 1) for name, each in found.frames_per_s.items()},
        "longest_frame_ms": {name: round(max(each)) for name, each in found.longest_ms.items()},
        "rounds": len(found.ready_s),
    }


def _facts(session: LongSession) -> dict[str, Any]:
    return {
        "call_s": session.duration_s,
        "session_events": session.events,
        "recorded_events": session.recorded_events,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = [
        ("conversation shown (slowest, s)", result["ready_s"]),
        ("recording shown (slowest, s)", result["shown_s"]),
    ]
    rows += [
        (f"{name}: frames a second (fewest), longest frame (ms)", f"{frames}, {longest}")
        for (name, frames), longest in zip(
            result["frames_per_s"].items(), result["longest_frame_ms"].values(), strict=True
        )
    ]
    return markdown((f"session of {result['call_s']} s", "result"), rows)


async def _round(browser: "Browser", url: str, session: LongSession, found: Found) -> None:
    page = await browser.new_page(viewport={"width": WIDTH_PX, "height": HEIGHT_PX})
    began_s = time.perf_counter()
    await page.goto(f"{url}/s/{session.session_id}", wait_until="commit")
    await page.wait_for_selector("body[data-state=ready]", timeout=WITHIN_MS)
    found.ready_s.append(time.perf_counter() - began_s)
    await page.locator('[data-role="recordings"] > summary').click()
    async with asyncio.timeout(WITHIN_MS / 1_000):
        await page.evaluate(SHOWN)
    found.shown_s.append(time.perf_counter() - began_s)
    await page.locator('[data-role="recordings"] > summary').click()
    for name, (fold, role, is_sideways) in PARTS.items():
        await _scroll(page, name, fold, role, found, is_sideways=is_sideways)
    await page.close()


async def _scroll(page: "Page", name: str, fold: str, role: str, found: Found, *, is_sideways: bool) -> None:
    """Scroll a part of the page to its one end and back, and count frames.

    Raises:
        PeerError: it did not scroll.
    """
    if fold:
        await page.locator(f'[data-role="{fold}"] > summary').click()
    node = page.locator(f'[data-role="{role}"]')
    await node.scroll_into_view_if_needed()
    box = await node.bounding_box()
    if box is None:
        raise PeerError(f"the page does not show {name}")
    place = "scrollLeft" if is_sideways else "scrollTop"
    begun = await node.evaluate(f"node => node.{place}")
    # Towards the end that is further away.
    ahead = await node.evaluate(
        "node => node.scrollWidth - node.clientWidth"
        if is_sideways
        else "node => node.scrollHeight - node.clientHeight"
    )
    direction = -1 if begun < ahead / 2 else 1
    session = await page.context.new_cdp_session(page)
    await page.evaluate(COUNT_FRAMES)
    for distance in (direction * SCROLL_PX, -direction * SCROLL_PX):
        await session.send(
            "Input.synthesizeScrollGesture",
            {
                "x": box["x"] + box["width"] / 2,
                "y": box["y"] + box["height"] / 2,
                "xDistance" if is_sideways else "yDistance": distance,
                "speed": SCROLL_PX_PER_S,
                "gestureSourceType": "mouse",
            },
        )
        if distance == direction * SCROLL_PX and await node.evaluate(f"node => node.{place}") == begun:
            raise PeerError(f"{name} did not scroll")
    stamps = await page.evaluate(FRAMES)
    spans = [after - before for before, after in zip(stamps, stamps[1:], strict=False)]
    found.frames_per_s[name].append(1_000 * len(spans) / (stamps[-1] - stamps[0]))
    found.longest_ms[name].append(max(spans))
    if fold:
        await page.locator(f'[data-role="{fold}"] > summary').click()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    arguments = parser().parse_args(argv)

    def run() -> dict[str, Any]:
        quiet_log()
        return asyncio.run(measure(arguments))

    return run_command(arguments, run, table)


if __name__ == "__main__":
    raise SystemExit(main())
