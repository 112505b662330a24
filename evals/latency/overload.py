"""Callers who all speak at once: who is admitted, who is refused, and whether each question is answered.

``python -m evals.latency.overload --callers 4 8 16`` starts a server with the embedded engines (or takes a
``--config``), dials so many callers at the same moment, and has all that are admitted ask the same questions
in step: the worst that a number of calls can be. Of each crowd it reports how many were admitted and refused
(with the status that they got), questions asked and answered, the time from the end of a question to the
first audible answer, and what ``/status`` said of admission meanwhile. All callers live in this process.
"""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from core.errors import PeerError
from evals.latency.client import Line, now_us
from evals.latency.conversation import Manners, hear_greeting
from evals.latency.figures import PERCENTILES, percentile
from evals.latency.questions import WHOLE, Utterance
from evals.latency.servers import running
from evals.latency.speech import Speakers, Spoken
from evals.serving_process import ROOT, Server

QUESTIONS = 2
ANSWER_S = 20.0
REST_S = 3.0


async def crowd(server: Server, callers: int, questions: list[Spoken]) -> dict[str, Any]:
    """So many callers at a time."""
    lines = [Line(server.url) for _ in range(callers)]
    try:
        for line in lines:
            await line.prepare()
        results = await asyncio.gather(*(line.dial() for line in lines), return_exceptions=True)
        admitted = [line for line, result in zip(lines, results, strict=True) if result is None]
        refused = [str(result).rpartition(" ")[2] for result in results if result is not None]
        await asyncio.gather(*(hear_greeting(line, Manners()) for line in admitted))
        waits_us: list[int] = []
        unanswered = 0
        status: dict[str, Any] = {}
        for question in questions:
            status = await _status(server)
            answers = await asyncio.gather(*(_ask(line, question) for line in admitted))
            waits_us += [answer for answer in answers if answer is not None]
            unanswered += sum(answer is None for answer in answers)
    finally:
        await asyncio.gather(*(line.hang_up() for line in lines), return_exceptions=True)
    waited = {f"p{percent}": percentile(waits_us, percent) for percent in PERCENTILES}
    return {
        "callers": callers,
        "admitted": len(admitted),
        "refused": {status: refused.count(status) for status in sorted(set(refused))},
        "questions": len(admitted) * len(questions),
        "answered": len(admitted) * len(questions) - unanswered,
        "answer_ms": {name: None if value is None else value // 1000 for name, value in waited.items()},
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


async def _status(server: Server) -> dict[str, Any]:
    async with aiohttp.ClientSession() as client, client.get(f"{server.url}/status") as response:
        status: dict[str, Any] = await response.json()
        return status


async def measure(config: Path, crowds: list[int], folder: Path) -> list[dict[str, Any]]:
    """Every crowd, smallest first, on one server."""
    speakers = Speakers(folder / "voices")
    questions = [
        speakers.speak(Utterance((WHOLE[number],), 0, "flite", "rms", 0)) for number in range(QUESTIONS)
    ]
    found = []
    async with running("parley", config, folder / "overload.log") as server:
        for callers in crowds:
            found.append(await crowd(server, callers, questions))
            print(json.dumps(found[-1]), flush=True)
            await asyncio.sleep(REST_S)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.latency.overload", description=__doc__)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "embedded.yaml")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--work", type=Path, help="folder for voices and the server's log")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        asyncio.run(measure(given.config, sorted(given.callers), work))


if __name__ == "__main__":
    main()
