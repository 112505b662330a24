"""Effect of a starting call on a running one.

The first caller asks and receives the bot's answer; a moment later a second caller, in another process, dials
the same server. The added lateness of a start is the worst packet of the first call within ``WINDOW_US`` of
the offer, minus the median of the second before it. The same figure for the stretch before the offer, when
nothing starts, is the control: the disturbance by the machine itself. A start counts when the bot was still
audible half a second after the offer. On a virtual machine the time that the host stole is reported with each
start (``stolen``), and the starts without any are also reported separately. The limit applies to all starts.
"""

import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.core.errors import PeerError
from parley.evals.harness.launcher import Server, child
from parley.evals.harness.manners import Manners, hear_greeting
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import tenths_ms
from parley.evals.harness.speech import Spoken
from parley.evals.harness.webrtc_caller import Line, now_us
from parley.evals.latency.capacity import packet_lateness
from parley.evals.latency.stolen import StolenTime

WINDOW_US = 1_500_000
CALM_US = 1_000_000
STILL_SPEAKING_US = 500_000
LIMIT_MS = 20
TICK_US = 10_000
SPEAKS_FOR_S = 0.4
EXTRA_TIMEOUT_S = 30.0
MAX_ATTEMPTS_PER_START = 3


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Lateness around the start of a call.

    Attributes:
        added_us: worst lateness after the offer over the calm median.
        control_us: the same of the calm stretch before it.
        stolen_us: CPU time that the host took meanwhile. None when that is not known.
        worst_at_us: time from the offer to the worst packet.
    """

    added_us: int
    control_us: int
    stolen_us: int | None = None
    worst_at_us: int = 0

    @property
    def is_undisturbed(self) -> bool:
        """True when the host took no CPU time; a single tick of the counter may stem from earlier."""
        return self.stolen_us is not None and self.stolen_us <= TICK_US


def disturbance(
    arrivals_us: Sequence[int], late_us: Sequence[int], offer_us: int, stolen_us: int | None = None
) -> Disturbance | None:
    """Return the lateness around an offer; None when there are no packets on one of its sides."""
    pairs = list(zip(arrivals_us, late_us, strict=True))
    calm = [late for at, late in pairs if offer_us - CALM_US <= at < offer_us]
    behind = [(late, at - offer_us) for at, late in pairs if offer_us <= at < offer_us + WINDOW_US]
    if not calm or not behind:
        return None
    middle = int(statistics.median(calm))
    worst_us, worst_at_us = max(behind)
    return Disturbance(max(0, worst_us - middle), max(0, max(calm) - middle), stolen_us, worst_at_us)


async def measure(server: Server, questions: Sequence[Spoken], *, starts: int) -> dict[str, Any]:
    """Start ``starts`` calls during a running one.

    Raises:
        PeerError: a call does not connect, or the bot does not speak long enough for the starts.
    """
    async with child("parley.evals.latency.extra_caller", "--url", server.url) as extra:
        return await _measure(Line(server.url), extra, questions, starts)


async def _measure(
    line: Line, extra: asyncio.subprocess.Process, questions: Sequence[Spoken], starts: int
) -> dict[str, Any]:
    stolen = StolenTime()
    progress = Progress("call starts", starts)
    try:
        await _expect(extra)
        await line.dial()
        await hear_greeting(line, Manners())
        offers: list[int] = []
        async with stolen:
            for attempt in range(starts * MAX_ATTEMPTS_PER_START):
                if len(offers) == starts:
                    break
                offer_us = await _start_one(line, extra, questions[attempt % len(questions)])
                if offer_us is not None:
                    offers.append(offer_us)
                    progress.step()
        late, _ = packet_lateness(line)
    finally:
        await line.hang_up()
    if len(offers) < starts:
        raise PeerError(f"only {len(offers)} of {starts} calls could be started while the bot spoke")
    found = [
        disturbance(line.ears.arrivals.at_us, late, offer_us, stolen.between(offer_us, offer_us + WINDOW_US))
        for offer_us in offers
    ]
    return summary([item for item in found if item is not None])


def summary(seen: Sequence[Disturbance]) -> dict[str, Any]:
    """Return the JSON of all starts; there must be at least one."""
    ours = [item for item in seen if item.is_undisturbed]
    return {
        "starts": len(seen),
        "added_ms": _worst_ms([item.added_us for item in seen]),
        "control_ms": _worst_ms([item.control_us for item in seen]),
        "each_added_ms": [round(item.added_us / 1000, 1) for item in seen],
        "each_control_ms": [round(item.control_us / 1000, 1) for item in seen],
        "each_worst_at_ms": [round(item.worst_at_us / 1000) for item in seen],
        "each_stolen_ms": [
            None if item.stolen_us is None else round(item.stolen_us / 1000, 1) for item in seen
        ],
        "nothing_stolen": {
            "starts": len(ours),
            "added_ms": _worst_ms([item.added_us for item in ours]) if ours else None,
        },
        "limit_ms": LIMIT_MS,
        "met": max(item.added_us for item in seen) <= LIMIT_MS * 1000,
    }


def _worst_ms(values_us: Sequence[int]) -> dict[str, float | None]:
    return {**tenths_ms(values_us), "max": round(max(values_us) / 1000, 1)}


async def _start_one(line: Line, extra: asyncio.subprocess.Process, question: Spoken) -> int | None:
    """Ask, and start a call during the answer.

    Returns:
        The client time of the offer; None when the bot did not keep speaking.
    """
    manners = Manners()
    await asyncio.sleep(question.gap_ms / 1000)
    await line.microphone.speak(question)
    if not await line.wait_bot_audible(now_us(), manners.answer_ms):
        return None
    await asyncio.sleep(SPEAKS_FOR_S)
    assert extra.stdin is not None
    extra.stdin.write(b"go\n")
    await extra.stdin.drain()
    report = await _expect(extra)
    offer_us = int(report["offered_us"]) - line.wall_offset_us
    await line.wait_bot_quiet(manners.reply_quiet_ms, manners.reply_ms)
    await _expect(extra)
    last_us = line.ears.last_audible_us or 0
    return offer_us if last_us >= offer_us + STILL_SPEAKING_US else None


async def _expect(extra: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return the next line of the second caller: empty for ``ready``, else its report."""
    assert extra.stdout is not None
    try:
        async with asyncio.timeout(EXTRA_TIMEOUT_S):
            text = (await extra.stdout.readline()).decode().strip()
    except TimeoutError:
        raise PeerError("the second caller did not answer") from None
    if not text:
        raise PeerError("the second caller could not connect")
    report = {} if text == "ready" else json.loads(text)
    return report if isinstance(report, dict) else {}
