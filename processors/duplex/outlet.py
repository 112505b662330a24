"""Outlet of a full-duplex engine: its speech to the voice, its conversation to the pipeline."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pipecat.frames.frames import Frame

from parley.processors.duplex.contents import Contents
from parley.processors.playout.playout import Playout
from parley.protocols.client_protocol import UnitSink


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Outlet of an engine's speech.

    Attributes:
        playout: records the text as it is written.
        contents: for an engine with a large tier in the pipeline: receives the output of the voice.
        holds_first: True when speech of the voice before the first engine is ready waits for it.
        reports_units: True when the client is notified when an engine is ready, and of each unit, after its
            audio (``protocols.client_protocol``); long units are then taken when they have arrived.
        unit_sink: receives the audio of such a unit as soon as it is made.
        voice_begins: returns whether the voice has to say something before an engine of its own words may.
    """

    playout: Playout | None = None
    contents: Contents | None = None
    holds_first: bool = True
    reports_units: bool = False
    unit_sink: UnitSink | None = None
    voice_begins: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Way:
    """Access of a conversation to the pipeline.

    Attributes:
        push: pushes a frame down.
        interrupt: interrupts up and down.
        apologise: has an apology said for an error; must not block for long.
    """

    push: Callable[[Frame], Awaitable[None]]
    interrupt: Callable[[], Awaitable[None]]
    apologise: Callable[[], Awaitable[None]]
