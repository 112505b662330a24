"""Units of a full-duplex engine: its decision for each, and the record of one."""

from dataclasses import dataclass
from enum import Enum


class Vote(Enum):
    """Decision of an engine for a unit."""

    LISTEN = "listen"
    SPEAK = "speak"
    BACKCHANNEL = "backchannel"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Tick:
    """Outcome of a unit.

    Attributes:
        slot: its place on the grid of units.
        due_us: when it was due.
        late_us: how much later it began.
        waited_us: wait after that, for the unit before to be finalized.
        took_us: from its beginning until its result was there, that wait included.
        missed: number of units before it that were not taken.
        heard_ms: audio of the caller in it; the rest was silence.
        left_out_ms: audio that was left out.
        frames: number of pictures in it.
        forced: True when the bot had to listen.
        vote: decision of the engine.
        said_ms: length of the result's audio.
        text: words of the result.
        kv_tokens: length of the context.
    """

    slot: int
    due_us: int
    late_us: int
    waited_us: int
    took_us: int
    missed: int
    heard_ms: int
    left_out_ms: int
    frames: int
    forced: bool
    vote: Vote
    said_ms: int
    text: str
    kv_tokens: int
