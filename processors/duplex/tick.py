"""Settings of an engine that is ticked, the record of each unit, and the call around it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import Field

from parley.audio.unit_buffer import Overrun
from parley.core.strict_model import StrictModel
from parley.core.units import Tick
from parley.models.omni import Preparation, UnitResult
from parley.processors.duplex.gate import GateSettings


class TickSettings(StrictModel):
    """Settings of the ticks of an engine."""

    gate: GateSettings = GateSettings()

    overrun: Overrun = Field(
        Overrun.MERGE,
        description="treatment of more audio than fits into a unit: drop leaves out the oldest, merge the "
        "quietest pieces",
    )
    slack_ms: int = Field(
        60, ge=0, le=1_000, description="audio beyond a unit that waits for the next unit instead"
    )
    deferred_finalize: bool = Field(True, description="send a result before its unit is finalised")
    prepare_ms: int = Field(30_000, ge=100, le=600_000, description="time limit for preparing an engine")
    hang_ms: int = Field(
        5_000,
        ge=50,
        le=60_000,
        description="time limit of a unit, after which it has failed; at least two units",
    )
    grace_ms: int = Field(1_000, ge=10, le=30_000, description="time for a stopped engine to return")
    frames_per_unit: int = Field(
        1, ge=0, le=8, description="newest pictures of a unit that the engine receives"
    )
    renew_from: float = Field(
        0.85,
        gt=0,
        le=1,
        description="share of the context in use from which a new context is started at a quiet moment",
    )


@dataclass(frozen=True, kw_only=True)
class TickedCall:
    """Callbacks of the call around a ticker. None of them may block.

    Attributes:
        on_result: takes each result.
        on_tick: takes the record of each unit, after its result.
        on_prepared: called when the engine has been prepared.
        must_listen: returns whether the bot has to be silent in the unit that begins.
        is_quiet: returns whether both sides are silent: a context that is nearly full may be begun anew.
        has_voice: returns whether the caller speaks: silence may be left out (``gate``).
        renewed: returns how a new context begins; None keeps the first preparation.
    """

    on_result: Callable[[UnitResult], None]
    on_tick: Callable[[Tick], None] = lambda _tick: None
    on_prepared: Callable[[], None] = lambda: None
    must_listen: Callable[[], bool] = lambda: False
    is_quiet: Callable[[], bool] = lambda: True
    has_voice: Callable[[], bool] = lambda: True
    renewed: Callable[[], Awaitable[Preparation]] | None = None
