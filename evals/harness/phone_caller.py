"""Caller by streamdouble: speech decided packet by packet, received audio recorded with its times.

streamdouble paces the speech, echoes marks when their audio has been played, and checks the received
messages; this module has the script. It is a generator that yields the next 20 ms when they are due. It may
use the audio received by then (``Recording``), because a caller who interrupts has to listen. Times are
seconds on the caller's clock (``time.perf_counter``), of sending and of arrival.
"""

import time
from base64 import b64decode
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamdouble.chaos import Impairments
from streamdouble.scenario import Say, Scenario
from streamdouble.session import Session, SessionConfig, SessionResult
from streamdouble.trace import Trace, TraceConfig

from parley.core.errors import PeerError
from parley.evals.harness.phone_speech import PACKET, PACKETS_PER_S, is_noise, is_speech

Script = Generator[bytes, None, None]


def ahead_s() -> float:
    """Return the offset from the caller's clock to wall-clock time, which sessions and logs use."""
    return time.time() - time.perf_counter()


@dataclass(frozen=True, slots=True)
class Piece:
    """A packet.

    Attributes:
        at_s: time of sending, or of arrival.
        mu_law: of any length.
    """

    at_s: float
    mu_law: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """An utterance of the caller.

    Attributes:
        text: the words.
        first_s: when the packet with its first sound left.
        last_s: when the packet with its last sound left.
    """

    text: str
    first_s: float
    last_s: float


class Recording(Trace):
    """Both sides of a call, as reported by streamdouble.

    Attributes:
        sent: packets of the caller.
        heard: packets to the caller.
        clears: times at which all received and unplayed audio was to be dropped.
        loud_s: arrival of the last packet with speech. None before the first.
    """

    def __init__(self) -> None:
        super().__init__(TraceConfig(Path()))
        self.sent: list[Piece] = []
        self.heard: list[Piece] = []
        self.clears: list[float] = []
        self.loud_s: float | None = None

    def note_out(self, frame: Mapping[str, Any], at: float) -> None:
        if frame["event"] == "media":
            self.sent.append(Piece(at, b64decode(frame["media"]["payload"])))

    def note_in(self, raw: str | bytes, at: float, *, parsed: Mapping[str, Any] | None = None) -> None:
        event = None if parsed is None else parsed.get("event")
        if parsed is not None and event == "media":
            piece = Piece(at, b64decode(parsed["media"]["payload"]))
            self.heard.append(piece)
            if is_speech(piece.mu_law):
                self.loud_s = at
        elif event == "clear":
            self.clears.append(at)

    def not_noise_between(self, from_s: float, to_s: float) -> list[Piece]:
        """Return the received packets of a time that are louder than comfort noise: speech and all else."""
        return [each for each in self.heard if from_s < each.at_s < to_s and not is_noise(each.mu_law)]

    def speech_between(self, from_s: float, to_s: float) -> list[Piece]:
        """Return the received packets of a time with speech."""
        return [each for each in self.heard if from_s < each.at_s < to_s and is_speech(each.mu_law)]

    # Parts of a script.

    def say(self, text: str, words: Sequence[bytes]) -> Generator[bytes, None, Said]:
        """Say something."""
        begun = len(self.sent)
        yield from words
        # Its last packet has left when the next one is requested.
        yield PACKET
        loud = [each for each in self.sent[begun:] if is_speech(each.mu_law)]
        if not loud:
            raise PeerError("none of the caller's speech was sent")
        return Said(text, loud[0].at_s, loud[-1].at_s)

    def wait(self, seconds: float) -> Script:
        """Stay silent and listen."""
        for _ in range(round(seconds * PACKETS_PER_S)):
            yield PACKET

    def until_heard(self, since_s: float, within_s: float) -> Generator[bytes, None, bool]:
        """Listen until the bot speaks; return whether it did in time."""
        until_s = time.perf_counter() + within_s
        while self.loud_s is None or self.loud_s <= since_s:
            if time.perf_counter() > until_s:
                return False
            yield PACKET
        return True

    def until_quiet(self, quiet_s: float, within_s: float) -> Generator[bytes, None, bool]:
        """Listen until the bot, which has spoken, is silent for ``quiet_s``; return whether it
        was in time.
        """
        until_s = time.perf_counter() + within_s
        while self.loud_s is None or time.perf_counter() - self.loud_s < quiet_s:
            if time.perf_counter() > until_s:
                return False
            yield PACKET
        return True


@dataclass(frozen=True, slots=True)
class Held:
    """A call that is over.

    Attributes:
        recording: of it.
        result: streamdouble's report.
    """

    recording: Recording
    result: SessionResult


async def call(url: str, script: Callable[[Recording], Script], *, loss: float = 0.0, seed: int = 0) -> Held:
    """Place one call, until its script is over; the caller hangs up.

    Args:
        url: of the front.
        script: of the caller.
        loss: share of the packets that never leave.
        seed: of the choice of lost packets.

    Raises:
        PeerError: it could not be placed, or the script met an impossible state.
    """
    recording = Recording()
    frames: Iterator[bytes] = script(recording)
    session = Session(
        url,
        scenario=Scenario("call", [Say(Path("-"), frames)]),  # frames are taken one by one
        config=SessionConfig(
            trace=recording,
            impairments=Impairments(loss=loss),
            chaos_seed=seed,
            quiet_period_s=0,
            max_drain_s=0,
            response_timeout_s=0.1,
        ),
    )
    try:
        result = await session.run()
    except (OSError, TimeoutError) as error:
        raise PeerError(f"the call could not be placed: {error!r}") from error
    except ExceptionGroup as group:
        raise PeerError(f"the call failed: {group.exceptions[0]!r}") from group
    return Held(recording, result)
