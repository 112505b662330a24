"""``python -m evals.recorded_sound``: compare the recording of a long call with the client's own recording.

A caller holds a call over WebRTC with questions, hesitations and interruptions until the time is over. It
records what it plays and what it says by its own clock. The stereo file of the server is compared with that,
window by window: every sound is in both, and the time between the two is the same for the whole call, up to a
difference that is reported for each side. A pause of the client's loop, or a packet that came late, is in the
client's recording: gaps of the playout inside of speech are counted.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from parley.core.errors import PeerError
from parley.evals.harness.collector import uncollected
from parley.evals.harness.command import machine, positive_number, quiet_log
from parley.evals.harness.launcher import running
from parley.evals.harness.manners import hear_greeting
from parley.evals.harness.matching import LEVEL_MS, Matching, matches, sounds_alone, turned
from parley.evals.harness.playout import lateness_us
from parley.evals.harness.progress import Progress
from parley.evals.harness.recording import WAV_RATE_HZ, played
from parley.evals.harness.report import add_outputs, markdown, percentile, run_command
from parley.evals.harness.speech import RATE_HZ
from parley.evals.harness.webrtc_caller import SLOT_US, Line, now_us
from parley.evals.human.callers import SpeechKind
from parley.evals.regression.recorded_calls import (
    MANNERS,
    Manner,
    PlannedTurn,
    hold_turn,
    open_sources,
    plan,
    recording_deployment,
    wait_merged,
)
from parley.recording.folder import MERGED, session_folders
from parley.recording.library import recordings_of

ALLOWED_MS = 20
# More turns than a call of an hour has.
TURNS_PER_MINUTE = 10


@dataclass(frozen=True, slots=True)
class HeldCall:
    """Facts and sound that the client has of its call.

    Attributes:
        caller: what it said, int16 at ``WAV_RATE_HZ`` from its first packet on.
        bot: what it played, likewise.
        turns: number of turns.
        underruns: gaps in the playout inside of speech.
        late_ms: lateness of the packets that it received.
        barge_ins: answers that it interrupted.
    """

    caller: np.ndarray
    bot: np.ndarray
    turns: int
    underruns: int
    late_ms: tuple[float, ...]
    barge_ins: int


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.recorded_sound",
        description="Compare the recording of a long call with the client's own recording.",
    )
    root.add_argument("--minutes", type=positive_number, default=10.0, help="length of the call")
    root.add_argument("--config", help="deployment (default: embedded)")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument(
        "--speech",
        type=SpeechKind,
        choices=(SpeechKind.HUMAN, SpeechKind.SYNTHETIC),
        default=SpeechKind.HUMAN,
        metavar="human|synthetic",
        help="the caller's speech",
    )
    root.add_argument(
        "--allowed-ms", type=positive_number, default=ALLOWED_MS, help="difference that is none"
    )
    add_outputs(root)
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Hold the call, compare, and return the JSON.

    Raises:
        PeerError: the server does not start, the call ends early, or it is not recorded.
        AgentError: there are no voices, or a file cannot be written.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, load = Path(name), os.getloadavg()[0]
        config = recording_deployment(folder, arguments.config)
        sources = await asyncio.to_thread(open_sources, arguments.speech, None)
        turns = round(arguments.minutes * TURNS_PER_MINUTE) + 1
        [call] = await asyncio.to_thread(plan, sources, 1, turns, arguments.seed, folder / "voices")
        async with running("parley", config, folder / "server.log") as server:
            with uncollected():
                held = await _hold(server.url, call.turns, arguments.minutes)
            await asyncio.to_thread(wait_merged, folder, 1)
        [path] = session_folders(folder)
        [recording] = recordings_of(folder, path.name)
        result = await asyncio.to_thread(_compared, recording.path / MERGED, held)
    return {**result, "load_before": round(load, 2), "machine": machine()}


async def _hold(url: str, turns: Sequence[PlannedTurn], minutes: float) -> HeldCall:
    """Hold a call of this length, and return what the client knows of it.

    Raises:
        PeerError: the call ended early.
    """
    line, loop, spoken = Line(url), asyncio.get_running_loop(), list[PlannedTurn]()
    progress = Progress("turns")
    try:
        await line.dial()
        until_s = loop.time() + 60 * minutes
        await hear_greeting(line, MANNERS)
        for turn in turns:
            if loop.time() >= until_s:
                break
            await hold_turn(line, turn)
            spoken.append(turn)
            progress.step()
        if not line.alive:
            raise PeerError(f"the call ended after {len(spoken)} turns")
        await line.wait_bot_quiet(MANNERS.reply_quiet_ms, MANNERS.reply_ms)
        return await asyncio.to_thread(_known_by, line, spoken)
    finally:
        await line.hang_up()


def _known_by(line: Line, spoken: Sequence[PlannedTurn]) -> HeldCall:
    heard = played(line, now_us())
    caller = np.zeros_like(heard.pcm)
    for sent in line.microphone.sent:
        start = sent.slot * SLOT_US * RATE_HZ // 1_000_000
        piece = sent.spoken.pcm[: max(caller.size - start, 0)]
        caller[start : start + piece.size] = piece
    late_us = lateness_us(line.ears.arrivals.at_us, line.ears.arrivals.rtp_timestamps, RATE_HZ)
    return HeldCall(
        soxr.resample(caller, RATE_HZ, WAV_RATE_HZ),
        soxr.resample(heard.pcm, RATE_HZ, WAV_RATE_HZ),
        len(spoken),
        len(heard.underruns),
        tuple(each / 1_000 for each in late_us),
        sum(turn.manner is Manner.INTERRUPTS for turn in spoken),
    )


def _compared(path: Path, held: HeldCall) -> dict[str, Any]:
    """Compare both sides of a stereo file with the client's recording."""
    samples, own_hz = soundfile.read(path, dtype="float32")
    if own_hz != WAV_RATE_HZ:
        samples = soxr.resample(samples, own_hz, WAV_RATE_HZ)
    caller, bot = (samples * 32_768).T
    return {
        "call_s": round(held.bot.size / WAV_RATE_HZ),
        "turns": held.turns,
        "barge_ins": held.barge_ins,
        "client_underruns": held.underruns,
        "client_packets_late_ms": {
            "p99": percentile([round(each, 1) for each in held.late_ms], 99),
            "max": round(max(held.late_ms), 1),
        },
        "bot": _side(held.bot, bot),
        "caller": _side(held.caller, caller),
    }


def _side(theirs: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    matching = matches(theirs, ours, WAV_RATE_HZ)
    spread = [abs(each.delay_ms - matching.delay_ms) for each in matching.found]
    return {
        "windows": matching.windows,
        "found": len(matching.found),
        "delay_ms": round(matching.delay_ms, 1),
        "largest_difference_ms": round(matching.largest_ms, 1),
        "p99_difference_ms": round(percentile(spread, 99) or 0.0, 1),
        "only_at_the_client_ms": _alone(theirs, ours, matching),
        "only_in_the_recording_ms": _alone(ours, theirs, matching, turns=True),
    }


def _alone(one: np.ndarray, other: np.ndarray, matching: Matching, *, turns: bool = False) -> int:
    """Return the length of the sound that one of the two has alone."""
    found = turned(matching.found) if turns else matching.found
    return LEVEL_MS * len(sounds_alone(one, other, WAV_RATE_HZ, found)) if found else 0


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = [
        (
            name,
            f"{side['found']} of {side['windows']}",
            side["largest_difference_ms"],
            side["p99_difference_ms"],
            side["only_at_the_client_ms"],
            side["only_in_the_recording_ms"],
        )
        for name, side in (("bot", result["bot"]), ("caller", result["caller"]))
    ]
    head = (
        f"{result['call_s']} s, {result['turns']} turns, {result['barge_ins']} barge-ins",
        "windows found",
        "largest difference (ms)",
        "p99 (ms)",
        "only at the client (ms)",
        "only in the recording (ms)",
    )
    return markdown(head, rows)


def is_same(result: Mapping[str, Any], allowed_ms: float) -> bool:
    """Return whether both sides are the same within a difference, and have nothing alone."""
    sides = [result["bot"], result["caller"]]
    return all(
        side["found"]
        and side["largest_difference_ms"] <= allowed_ms
        and not side["only_at_the_client_ms"]
        and not side["only_in_the_recording_ms"]
        for side in sides
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 when the recordings differ, or 2 after printing one line."""
    arguments = parser().parse_args(argv)
    found: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        quiet_log()
        found.update(asyncio.run(measure(arguments)))
        return found

    status = run_command(arguments, run, table)
    return status or int(not is_same(found, arguments.allowed_ms))


if __name__ == "__main__":
    raise SystemExit(main())
