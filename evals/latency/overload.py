"""Measure admission and answers when many callers speak at the same time.

``python -m evals.latency.overload --callers 4 8 16`` starts a server with the embedded engines (or that of
``--config``) and dials the given number of callers at the same moment. All that are admitted ask the same
questions in step, which is the worst case for a number of calls. Each caller has an address of its own. The
report of each crowd contains:

* the numbers of callers admitted, waiting in the queue (``waiting``, with the positions reported to them) and
  refused (with their status);
* the questions of admitted callers asked and answered;
* the time from the end of a question to the first audible answer, also as a multiple of that of a crowd of
  one, and its parts by the marks of the server (``spans_ms``);
* the state of admission in ``/status`` meanwhile.

A caller who waits and has a position is not lost, and asks nothing. A caller who is neither on the line nor
has a position is ``lost``. All callers live in this process: ``client_lag_ms`` is the lateness of its loop,
and ``processors`` the share of the machine that was in use.
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from parley.core.errors import PeerError
from parley.evals.abuse.target import own_address
from parley.evals.harness.command import exit_code
from parley.evals.harness.launcher import ROOT, Server, running
from parley.evals.harness.manners import Manners, hear_greeting
from parley.evals.harness.progress import say
from parley.evals.harness.questions import WHOLE, Utterance
from parley.evals.harness.report import percentiles_ms
from parley.evals.harness.speech import Speakers, Spoken
from parley.evals.harness.webrtc_caller import Line, now_us
from parley.evals.latency.capacity import ANSWER_RATIO, probe_lag
from parley.evals.latency.spans import SPANS, bot_first_us, match_marks, turn_spans, user_end_us
from parley.serving.gateway.admission import processor_ticks

QUESTIONS = 2
ANSWER_S = 20.0
REST_S = 3.0
PLACED_MS = 15_000


async def crowd(server: Server, callers: int, questions: list[Spoken]) -> dict[str, Any]:
    """Place this number of calls at the same time and report them."""
    lines = [Line(server.url, address=own_address(number)) for number in range(callers)]
    try:
        for line in lines:
            await line.prepare()
        results = await asyncio.gather(*(line.dial() for line in lines), return_exceptions=True)
        connected = [line for line, result in zip(lines, results, strict=True) if result is None]
        placed = await asyncio.gather(*(line.wait_placed(PLACED_MS) for line in connected))
        admitted = [line for line, is_placed in zip(connected, placed, strict=True) if is_placed]
        positions = sorted(line.queue_position for line in connected if line not in admitted)
        refused = [str(result).rpartition(" ")[2] for result in results if result is not None]
        await asyncio.gather(*(hear_greeting(line, Manners()) for line in admitted))
        waits_us: list[int] = []
        lags_us: list[int] = []
        unanswered = 0
        status: dict[str, Any] = {}
        ticks = processor_ticks()
        probe = asyncio.create_task(probe_lag(lags_us), name="overload.lag")
        try:
            for question in questions:
                status = await _status(server)
                answers = await asyncio.gather(*(_ask(line, question) for line in admitted))
                waits_us += [answer for answer in answers if answer is not None]
                unanswered += sum(answer is None for answer in answers)
        finally:
            probe.cancel()
        processors = busy_share(ticks, processor_ticks())
        spans = [spans for line in admitted for spans in _spans(line)]
    finally:
        await asyncio.gather(*(line.hang_up() for line in lines), return_exceptions=True)
    return {
        "callers": callers,
        "admitted": len(admitted),
        "waiting": len([position for position in positions if position]),
        "positions": [position for position in positions if position],
        "lost": positions.count(0),
        "refused": {status: refused.count(status) for status in sorted(set(refused))},
        "questions": len(admitted) * len(questions),
        "answered": len(admitted) * len(questions) - unanswered,
        "answer_ms": percentiles_ms(waits_us),
        "spans_ms": spans_ms(spans),
        "client_lag_ms": percentiles_ms(lags_us),
        "processors": processors,
        "admission": status.get("admission"),
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


async def _ask(line: Line, question: Spoken) -> int | None:
    """Ask a question; return the time until its answer was audible, None when it did not come."""
    try:
        await line.microphone.speak(question)
    except PeerError:
        return None
    ended_us = now_us()
    if not await line.wait_bot_audible(ended_us, int(ANSWER_S * 1000)):
        return None
    waited_us = (line.ears.last_audible_us or ended_us) - ended_us
    await line.wait_bot_quiet(Manners().reply_quiet_ms, Manners().reply_ms)
    return waited_us


def _spans(line: Line) -> list[dict[str, int]]:
    """Return the spans of each answered question of a call."""
    turns = line.server_messages("turn")
    found = []
    for sent in line.microphone.sent:
        end_us = user_end_us(line, sent)
        first_us = bot_first_us(line, end_us)
        turn = None if first_us is None else match_marks(turns, end_us, first_us)
        if first_us is not None and turn is not None:
            found.append(turn_spans(end_us, first_us, turn["marks_us"]))
    return found


def spans_ms(turns: Sequence[Mapping[str, int]]) -> dict[str, dict[str, int | None]]:
    """Return percentiles of each span, in the order of ``SPANS``; spans that no turn has are left out."""
    named = {name: [turn[name] for turn in turns if name in turn] for name in SPANS}
    return {name: percentiles_ms(values_us) for name, values_us in named.items() if values_us}


def busy_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """Return the share of the time of all processors that any program used; None when it is not known."""
    if before is None or after is None or after[0] <= before[0]:
        return None
    return round(1 - (after[1] - before[1]) / (after[0] - before[0]), 2)


def slower(answer_ms: Mapping[str, int | None], alone_ms: Mapping[str, int | None]) -> dict[str, float]:
    """Return the percentiles of a crowd as multiples of those of one call; none where either has none.

    Calls in progress keep their latency when none is above ``ANSWER_RATIO``.
    """
    return {
        name: round(value / alone, 2)
        for name, value in answer_ms.items()
        if value is not None and (alone := alone_ms.get(name))
    }


async def _status(server: Server) -> dict[str, Any]:
    async with aiohttp.ClientSession() as client, client.get(f"{server.url}/status") as response:
        status: dict[str, Any] = await response.json()
        return status


async def measure(config: Path, crowds: list[int], folder: Path) -> list[dict[str, Any]]:
    """Measure every crowd, smallest first, on one server."""
    speakers = Speakers(folder / "voices")
    questions = [
        speakers.speak(Utterance((WHOLE[number],), 0, "flite", "rms", 0)) for number in range(QUESTIONS)
    ]
    found = []
    async with running("parley", config, folder / "overload.log") as server:
        for callers in crowds:
            say(f"{callers} callers")
            found.append(await crowd(server, callers, questions))
            if found[0]["callers"] == 1:
                found[-1]["slower"] = slower(found[-1]["answer_ms"], found[0]["answer_ms"])
                found[-1]["keeps_latency"] = all(
                    each <= ANSWER_RATIO for each in found[-1]["slower"].values()
                )
            print(json.dumps(found[-1]), flush=True)
            await asyncio.sleep(REST_S)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    parser = argparse.ArgumentParser(prog="python -m evals.latency.overload", description=__doc__)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "embedded.yaml")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--work", type=Path, help="folder for the voices and the server's log")
    given = parser.parse_args(argv)
    return exit_code(lambda: _in_folder(given))


def _in_folder(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        asyncio.run(measure(given.config, sorted(given.callers), work))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
