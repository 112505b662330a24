"""Record calls for a replay: callers of several kinds, who wait, interrupt, murmur and hesitate.

``plan`` draws what each caller says and does; the same seed gives the same calls. ``record_calls`` holds them
with a real server over WebRTC, several at a time, and returns when every recording is complete. All sound is
made before the first call: the callers' loop has nothing to compute while calls are on.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import yaml

from parley.core.errors import ConfigError, PeerError
from parley.evals.harness.collector import uncollected
from parley.evals.harness.launcher import running
from parley.evals.harness.manners import Manners, hear_greeting
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.questions import Utterance
from parley.evals.harness.speech import Speakers, Spoken, of_turn
from parley.evals.harness.webrtc_caller import Line, now_us
from parley.evals.human.callers import CallerSpeech, SpeechKind, open_callers, open_generated
from parley.recording.folder import MERGED, SESSIONS

GAP_MS = 600
# A caller who interrupts has heard the beginning of the answer.
FIRST_HEARD_MS, LAST_HEARD_MS = 800, 2_600
# Shares of what a caller does during an answer; who is silent hears it to its end.
INTERRUPTS_SHARE, MURMURS_SHARE = 0.4, 0.2
# "mhm" is no word of these voices; the bot speaks with another one.
MURMURS = ("okay", "yeah", "right", "uh huh")
MURMUR_VOICES = ("rms", "awb", "kal16")
# The stereo file, which is made last, shows that a recording is complete.
MADE_S = 60.0
RECORDED_BY = "recorded_by.yaml"
MANNERS = Manners()


class Manner(StrEnum):
    """Behaviour of a caller during an answer."""

    LISTENS = "listens to its end"
    INTERRUPTS = "interrupts it with the next turn"
    MURMURS = "murmurs and listens on"


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn of a caller, and what they do during its answer.

    Attributes:
        spoken: what they say.
        manner: what they do during the answer.
        heard_ms: how much of the answer they hear before they do so.
        murmur: what they murmur; None unless they do.
    """

    spoken: Spoken
    manner: Manner
    heard_ms: int = 0
    murmur: Spoken | None = None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """Turns of one caller, in order; the last answer is heard to its end."""

    turns: tuple[PlannedTurn, ...]

    @property
    def barge_ins(self) -> int:
        """Number of answers that the caller interrupts."""
        return sum(turn.manner is Manner.INTERRUPTS for turn in self.turns)

    @property
    def murmurs(self) -> int:
        """Number of answers during which the caller murmurs."""
        return sum(turn.manner is Manner.MURMURS for turn in self.turns)

    @property
    def hesitations(self) -> int:
        """Number of pauses inside turns."""
        return sum(len(turn.spoken.pauses_ms) for turn in self.turns)


def open_sources(kind: SpeechKind | None, own: Path | None) -> list[CallerSpeech]:
    """Return the sources of callers, which take turns from call to call.

    Without a kind they are people and generated voices, or generated voices alone where the recordings of
    people were not fetched.

    Raises:
        ConfigError: the recordings, or a generator, are missing.
        EngineError: a generator failed.
        MediaError: a recording cannot be decoded.
    """
    sources: list[CallerSpeech] = []
    if kind is not SpeechKind.SYNTHETIC:
        try:
            sources.append(open_callers(SpeechKind.HUMAN, own=own))
        except ConfigError as error:
            if kind is not None or own is not None:
                raise
            say(f"synthetic callers alone: {error}")
    if kind is not SpeechKind.HUMAN and own is None:
        sources.append(open_generated())
    return sources


def plan(
    sources: Sequence[CallerSpeech], calls: int, turns: int, seed: int, voices: Path
) -> list[PlannedCall]:
    """Draw calls; the same arguments give the same calls.

    Args:
        sources: of the callers, one call each in turns.
        calls: number of them.
        turns: of each.
        seed: of the draw.
        voices: folder of the sound that was made before.

    Raises:
        MediaError: a recording is silent.
    """
    speakers = Speakers(voices)
    murmurs = [
        speakers.speak(Utterance((text,), 0, "flite", voice, gap_ms=0))
        for text, voice in zip(MURMURS, cycle(MURMUR_VOICES), strict=False)
    ]
    progress = Progress("planned calls", calls)
    planned = []
    for number, source in enumerate(islice(cycle(sources), calls)):
        rng = np.random.default_rng((seed, number))
        said = [of_turn(turn, gap_ms=GAP_MS) for turn in source.turns(turns, seed + number)]
        *before, last = said
        made = [_planned(spoken, murmurs, rng) for spoken in before]
        planned.append(PlannedCall((*made, PlannedTurn(last, Manner.LISTENS))))
        progress.step()
    return planned


def _planned(spoken: Spoken, murmurs: Sequence[Spoken], rng: np.random.Generator) -> PlannedTurn:
    drawn, heard_ms = rng.random(), int(rng.integers(FIRST_HEARD_MS, LAST_HEARD_MS))
    murmur = murmurs[int(rng.integers(len(murmurs)))]
    if drawn < INTERRUPTS_SHARE:
        return PlannedTurn(spoken, Manner.INTERRUPTS, heard_ms)
    if drawn < INTERRUPTS_SHARE + MURMURS_SHARE:
        return PlannedTurn(spoken, Manner.MURMURS, heard_ms, murmur)
    return PlannedTurn(spoken, Manner.LISTENS)


async def record_calls(calls: Sequence[PlannedCall], folder: Path, config: Path, *, at_once: int) -> None:
    """Hold the calls with a server that records them; return when all recordings are complete.

    Args:
        calls: to hold.
        folder: of the recordings, and of the server's log.
        config: deployment that records into it (``recording_deployment``).
        at_once: calls that are on at the same time.

    Raises:
        PeerError: the server does not start, refuses a call or does not complete a recording.
    """
    free = asyncio.Semaphore(at_once)
    progress = Progress("recorded calls", len(calls))
    made = len(await asyncio.to_thread(merged, folder))

    async def one(url: str, call: PlannedCall) -> None:
        async with free:
            await _hold(url, call)
            progress.step()

    async with running("parley", config, folder / "server.log") as server:
        try:
            with uncollected():
                async with asyncio.TaskGroup() as tasks:
                    for number, call in enumerate(calls):
                        tasks.create_task(one(server.url, call), name=f"regression.call.{number}")
        except* PeerError as failed:
            raise failed.exceptions[0] from None
        await asyncio.to_thread(wait_merged, folder, made + len(calls))


def recording_deployment(folder: Path, extended: str | None) -> Path:
    """Write a deployment that extends another one and records into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    config, inside = folder / RECORDED_BY, folder.absolute()
    settings = {
        "name": "recorded",
        "extends": _named(extended or "embedded"),
        "recording": {"enabled": True, "folder": str(inside), "s3": None},
        # Its callers are as many as the command says.
        "server": {"admission": "off", "sessions_per_minute": 10_000},
        "remembering": {"store": {"url": f"sqlite:///{inside}/sessions.db"}},
    }
    config.write_text(yaml.safe_dump(settings))
    return config


def _named(deployment: str) -> str:
    """Return a deployment as another file names it: a path counts from the file that has it."""
    path = Path(deployment)
    return str(path.absolute()) if path.is_file() else deployment


def merged(folder: Path) -> list[Path]:
    """Return the stereo files of a folder of recordings."""
    return list((folder / SESSIONS).glob(f"*/*/{MERGED}"))


def wait_merged(folder: Path, calls: int) -> None:
    """Wait until this many calls have their stereo file.

    Raises:
        PeerError: not within ``MADE_S``.
    """
    until_s = time.monotonic() + MADE_S
    while len(merged(folder)) < calls:
        if time.monotonic() > until_s:
            raise PeerError(f"{folder}: the recording of a call is not complete after {MADE_S:g} s")
        time.sleep(0.2)


async def _hold(url: str, call: PlannedCall) -> None:
    """Hold one call."""
    line = Line(url)
    try:
        await line.dial()
        await hear_greeting(line, MANNERS)
        for turn in call.turns:
            await hold_turn(line, turn)
    finally:
        await line.hang_up()


async def hold_turn(line: Line, turn: PlannedTurn) -> None:
    """Say a turn, and hear its answer, or as much of it as the caller does."""
    await asyncio.sleep(turn.spoken.gap_ms / 1_000)
    await line.microphone.speak(turn.spoken)
    if not await line.wait_bot_audible(now_us(), MANNERS.answer_ms):
        return
    if turn.manner is not Manner.LISTENS:
        # Where the answer is shorter, the next turn or the murmur follows it.
        await asyncio.sleep(turn.heard_ms / 1_000)
    if turn.manner is Manner.INTERRUPTS:
        return
    if turn.murmur is not None:
        await line.microphone.speak(turn.murmur)
    await line.wait_bot_quiet(MANNERS.reply_quiet_ms, MANNERS.reply_ms)
