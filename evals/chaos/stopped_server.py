"""Server whose host stops it while a caller speaks, as a host with too many guests does.

A process that was stopped gets the caller's audio of that time at once, and every timer of it is due. The
question is to be understood as it is without the stop.
"""

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from parley.core.errors import PeerError
from parley.evals.abuse.target import Setting, Target, serving
from parley.evals.harness.questions import Utterance
from parley.evals.harness.speech import Speakers, Spoken
from parley.evals.harness.webrtc_caller import Line, now_us

if TYPE_CHECKING:
    from parley.evals.chaos.rows import ChaosRun

# Questions, each with the time from its first packet to the stop, and the length of the stop. The embedded
# recogniser understands them in this voice.
VOICE = "flite", "rms"
STOPS_S = (
    ("what are your opening hours on saturday", 0.3, 1.0),
    ("what does a replacement card cost", 0.8, 1.5),
    ("how long does a transfer take", 1.0, 2.0),
    ("how do i change my address", 0.6, 2.5),
)
GREETING = "Hello there."
QUIET_MS, GREETED_MS, ENDED_MS, ANSWERED_MS = 500, 20_000, 2_000, 30_000


async def stopped_server(run: "ChaosRun") -> list[str]:
    """Ask questions in browser calls, each without a stop and then with one; return those misunderstood."""
    speakers, faults = Speakers(run.folder / "speech"), list[str]()
    async with serving(run.folder / "stopped", Setting({"bot": {"greeting": GREETING}})) as target:
        for text, at_s, stop_s in STOPS_S:
            spoken = await asyncio.to_thread(speakers.speak, Utterance((text,), 0, *VOICE, 0))
            for stop in (None, (at_s, stop_s)):
                words = await understood(target, spoken, stop)
                if words != text:
                    stopped = "without a stop" if stop is None else f"stopped for {stop_s:g} s"
                    faults.append(f"{stopped}: {words!r} instead of {text!r}")
    return faults


async def understood(target: Target, question: Spoken, stop_s: tuple[float, float] | None) -> str:
    """Ask a question in a new call, and stop the server meanwhile; return the words of its turn.

    Raises:
        PeerError: the call has no greeting or no turn.
    """
    line = Line(target.url)
    await line.dial()
    try:
        if not await line.wait_bot_quiet(QUIET_MS, GREETED_MS):
            raise PeerError("the call has no greeting")
        before = len(line.server_messages("turn"))
        stops = () if stop_s is None else (stand_still(target.pid, *stop_s),)
        await asyncio.gather(line.microphone.speak(question), *stops)
        ends_us = now_us() + ANSWERED_MS * 1000
        while now_us() < ends_us:
            if len(line.server_messages("turn")) > before:
                break
            await asyncio.sleep(0.05)
        # A question that was cut in two has another turn.
        await line.wait_bot_quiet(ENDED_MS, ANSWERED_MS)
        if not (turns := line.server_messages("turn")[before:]):
            raise PeerError(f"no turn after {question.text!r}")
        return " ".join(str(turn["user_text"]) for turn in turns)
    finally:
        await line.hang_up()


async def stand_still(pid: int, after_s: float, long_s: float) -> None:
    """Stop a process after a time, and let it go on, as a busy host does."""
    await asyncio.sleep(after_s)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(long_s)
    finally:
        os.kill(pid, signal.SIGCONT)
