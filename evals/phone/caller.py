"""A caller by streamdouble: what they say is decided packet by packet, what they hear is kept with its times.

streamdouble paces what is said, echoes marks when their audio has been played, and checks what comes; here is
the script. It is a generator that is asked for the next 20 ms when they are due and may look at what has been
heard by then (``Recording``): a caller who interrupts has to listen. Times are seconds on the caller's clock
(``time.perf_counter``), those of sending and of arrival.
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

from core.errors import PeerError
from evals.phone.speech import PACKET, PACKETS_PER_S, is_noise, is_speech

Script = Generator[bytes, None, None]


def ahead_s() -> float:
    """What is added to the caller's clock for wall-clock time, which sessions and logs are in."""
    return time.time() - time.perf_counter()


@dataclass(frozen=True, slots=True)
class Piece:
    """A packet.

    Attributes:
        at_s: when it was sent, or came.
        mu_law: of any length.
    """

    at_s: float
    mu_law: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """Something that the caller said.

    Attributes:
        text: the words.
        first_s: when the packet with its first sound left.
        last_s: the same of the last.
    """

    text: str
    first_s: float
    last_s: float


class Recording(Trace):
    """Both sides of a call, as streamdouble tells them.

    Attributes:
        sent: what the caller said.
        heard: what the caller was sent.
        clears: when everything that had come and was not played was to be dropped.
        loud_s: when the last packet with speech came; None before the first.
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
        """The same, and everything else that is louder than comfort noise."""
        return [each for each in self.heard if from_s < each.at_s < to_s and not is_noise(each.mu_law)]

    def speech_between(self, from_s: float, to_s: float) -> list[Piece]:
        """Packets with speech that came then."""
        return [each for each in self.heard if from_s < each.at_s < to_s and is_speech(each.mu_law)]

    # Parts of a script.

    def say(self, text: str, words: Sequence[bytes]) -> Generator[bytes, None, Said]:
        """Say something."""
        begun = len(self.sent)
        yield from words
        # Its last packet has left when the next one is asked for.
        yield PACKET
        loud = [each for each in self.sent[begun:] if is_speech(each.mu_law)]
        if not loud:
            raise PeerError("nothing of what the caller said has left")
        return Said(text, loud[0].at_s, loud[-1].at_s)

    def wait(self, seconds: float) -> Script:
        """Listen."""
        for _ in range(round(seconds * PACKETS_PER_S)):
            yield PACKET

    def until_heard(self, since_s: float, within_s: float) -> Generator[bytes, None, bool]:
        """Listen until the bot speaks; whether it did in time."""
        until_s = time.perf_counter() + within_s
        while self.loud_s is None or self.loud_s <= since_s:
            if time.perf_counter() > until_s:
                return False
            yield PACKET
        return True

    def until_quiet(self, quiet_s: float, within_s: float) -> Generator[bytes, None, bool]:
        """Listen until the bot, which has spoken, is silent for so long; whether it was in time."""
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
        result: what streamdouble says of it.
    """

    recording: Recording
    result: SessionResult


async def call(url: str, script: Callable[[Recording], Script], *, loss: float = 0.0, seed: int = 0) -> Held:
    """One call, until its script is over; the caller hangs up.

    Args:
        url: of the front.
        script: what the caller says.
        loss: share of the packets that never leave.
        seed: of which ones.

    Raises:
        PeerError: it could not be placed, or the script found something that cannot be.
    """
    recording = Recording()
    frames: Iterator[bytes] = script(recording)
    session = Session(
        url,
        scenario=Scenario("call", [Say(Path("-"), frames)]),  # taken one by one
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
        raise PeerError(f"the call broke: {group.exceptions[0]!r}") from group
    return Held(recording, result)
