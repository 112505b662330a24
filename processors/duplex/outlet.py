"""Outlet of a full-duplex engine: its speech to the voice, its conversation to the pipeline."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pipecat.frames.frames import Frame

from processors.duplex.contents import Contents
from processors.duplex.tick import Tick
from processors.playout.playout import Playout
from protocols.surface import UnitMouth


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Outlet of what an engine says.

    Attributes:
        playout: its books take what is said, as it is written.
        contents: for an engine with a large tier in the pipeline: what the voice makes goes there.
        holds_first: what the voice says before the first engine is on waits for it.
        tells_units: the client is told when an engine is ready, and of each unit, after its audio
            (``protocols.surface``); long units are taken when they have been heard.
        mouth: has what is said in a unit that was taken so as soon as it is made.
        on_tick: takes the record of each unit; must not block.
    """

    playout: Playout | None = None
    contents: Contents | None = None
    holds_first: bool = True
    tells_units: bool = False
    mouth: UnitMouth | None = None
    on_tick: Callable[[Tick], None] = lambda _tick: None


@dataclass(frozen=True)
class Way:
    """The way of a conversation into the pipeline.

    Attributes:
        push: pushes a frame down.
        interrupt: interrupts up and down.
        apologise: says that something went wrong; must not block for long.
    """

    push: Callable[[Frame], Awaitable[None]]
    interrupt: Callable[[], Awaitable[None]]
    apologise: Callable[[], Awaitable[None]]
