"""Full-duplex speech models: a unit of what is heard in, a unit of what is said (or silence) out.

An engine is asked once a unit, whether anybody speaks or not, and decides itself when to talk. Of each unit:

    prefill(audio, frames)   what was heard and seen
    generate(force_listen)   listen, or speak: text and audio of this unit
    finalize()               what can wait until the result has left (terminators, the context's window)

``prepare`` comes once before, ``cleanup`` once behind; ``stop`` ends a generation that runs. ``phases`` has
what may follow what, and every engine keeps to it. A host holds the weights; an engine is one conversation.

All methods but ``stop`` block, and are called from one thread at a time. ``stop`` may be called from any
thread at any time, returns at once, and the running call returns within a token.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from core.registry import Registry, Row

SILENCE = np.zeros(0, dtype=np.float32)
SILENCE.setflags(write=False)


class Vote(Enum):
    """What an engine does with a unit."""

    LISTEN = "listen"
    SPEAK = "speak"
    BACKCHANNEL = "backchannel"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a conversation begins.

    Attributes:
        system_prompt: who the bot is.
        llm_ref_audio: a voice for the language model to sound like, float32, (samples,), at the engine's
            input rate; None for its own.
        tts_ref_audio: the same for what turns its tokens into sound.
        history: what was said before, oldest first, as (role, text): a context that was full begins anew.
        settings: the engine's own, by name; an unknown one is refused.
    """

    system_prompt: str = ""
    llm_ref_audio: np.ndarray | None = None
    tts_ref_audio: np.ndarray | None = None
    history: tuple[tuple[str, str], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What became of a unit.

    Attributes:
        vote: what was decided.
        text: what is said in this unit.
        audio: float32, (samples,), at the engine's output rate, in [-1, 1]; empty for silence.
        end_of_turn: nothing more of what is being said comes.
        written: all that is to be said, as far as it is known; empty from an engine that does not know.
        is_aside: what is said is no part of the conversation, as a phrase that covers a silence.
        broke_off: words of what is ``written`` are missing behind those of this unit: the voice failed.
        n_tokens: of the language model.
        n_tts_tokens: of the voice.
        cost_prefill_ms: what hearing and seeing took.
        cost_llm_ms: what the language model took.
        cost_tts_ms: what the voice took.
        kv_tokens: length of the context behind it; 0 from an engine without one.
    """

    vote: Vote
    text: str = ""
    audio: np.ndarray = field(default_factory=lambda: SILENCE)
    end_of_turn: bool = False
    n_tokens: int = 0
    n_tts_tokens: int = 0
    cost_prefill_ms: float = 0.0
    cost_llm_ms: float = 0.0
    cost_tts_ms: float = 0.0
    kv_tokens: int = 0
    is_aside: bool = False
    written: str = ""
    broke_off: bool = False

    @property
    def is_listen(self) -> bool:
        """Whether the bot is silent in it."""
        return self.vote in (Vote.LISTEN, Vote.YIELD)


class OmniEngine(Protocol):
    """One conversation. Not thread-safe but for ``stop``.

    Attributes:
        unit_ms: length of a unit.
        first_unit_ms: length of the first one; some encoders need more to begin with.
        input_rate_hz: of what is heard.
        output_rate_hz: of what is said.
        context_units: after about so many units the context is full; None: never.
        takes_frames: whether it sees.
    """

    unit_ms: int
    first_unit_ms: int
    input_rate_hz: int
    output_rate_hz: int
    context_units: int | None
    takes_frames: bool

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation.

        Raises:
            ConfigError: an unknown setting, or one that is out of range.
            EngineError: the engine failed.
            IllegalTransition: one is on.
        """
        ...

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Hear a unit, and see it.

        Args:
            audio: float32, (samples,), a unit at ``input_rate_hz``, in [-1, 1]; a shorter one is padded with
                silence in front; empty when only frames are given.
            frames: uint8, (height, width, 3), RGB, in order.

        Raises:
            ShapeError: another shape, dtype or length; nothing at all; values that are not finite.
            EngineError: the engine failed.
            IllegalTransition: the unit before is not finalized.
        """
        ...

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Decide, and say what is said in this unit.

        Args:
            force_listen: be silent, and give up what is being said.

        Raises:
            EngineError: the engine failed.
            IllegalTransition: nothing was heard before.
        """
        ...

    def finalize(self) -> None:
        """End the unit; the next one may begin behind it.

        Raises:
            EngineError: the engine failed.
            IllegalTransition: there was no unit.
        """
        ...

    def stop(self) -> None:
        """End a generation that runs. From here on units are silent until ``cleanup``. Never raises."""
        ...

    def cleanup(self) -> None:
        """Give back what the conversation took; another may be prepared behind it. Allowed at any time."""
        ...


@runtime_checkable
class HearsWords(Protocol):
    """An engine that says what others find: it wants to know what was understood."""

    def on_words(self, words: Any) -> None:
        """What a specialist beside understood (``two_tier.ears.Told``); from any thread."""
        ...

    def on_settled(self) -> None:
        """The answer that was owed begins, or does not come; from any thread."""
        ...


@runtime_checkable
class EndsTurns(Protocol):
    """An engine that can be told that the caller's turn is over."""

    def end_turn(self) -> None:
        """From any thread."""
        ...


class OmniHost(Protocol):
    """Shared weights.

    Attributes:
        sessions: so many engines may be open at a time; None: any number.
        takes_frames: whether its engines see.
    """

    sessions: int | None
    takes_frames: bool

    def open_engine(self) -> OmniEngine:
        """An engine for one conversation.

        Raises:
            CapacityError: as many are open as there may be.
        """
        ...

    def close(self) -> None:
        """Give back the weights. No engine may be open."""
        ...


@runtime_checkable
class Placing(Protocol):
    """A host of one conversation, whose engine is in a worker that has to be had first.

    Attributes:
        lost: set when the worker that it has is gone.
    """

    @property
    def lost(self) -> asyncio.Event: ...

    async def place(self) -> None:
        """Return when there is a worker; ``open_engine`` has its engine from then on.

        Raises:
            CapacityError: there will be none.
        """
        ...

    def leave(self) -> None:
        """The call goes on elsewhere: it waits for no worker any more. Never blocks."""
        ...

    def over(self, *, well: bool) -> None:
        """The engine was given back; ``well``: not because it failed. Never blocks."""
        ...


OMNI: Registry[OmniHost] = Registry(
    "omni engine",
    {
        "two_tier": Row(
            "models.omni.two_tier.engine:TwoTierHost",
            "a policy of 80 ms decides, the deployment's model and voice are woken for what is said",
        ),
        "moshi": Row(
            "models.omni.moshi.host:MoshiHost", "hears and speaks in frames of 80 ms, English", extra="moshi"
        ),
        "minicpm_o": Row(
            "models.omni.minicpm_o.engine:MiniCpmOHost",
            summary="MiniCPM-o 4.5 on this machine, in a process and Python environment of its own",
        ),
        "minicpm_worker": Row(
            "models.omni.minicpm_worker.engine:MiniCpmWorkerHost",
            summary="MiniCPM-o 4.5 in a worker or behind the gateway of its own server",
        ),
        "worker": Row(
            "models.omni.hosted.engine:WorkerOmniHost",
            "one that finds its own words, in a process of its own: python runner.py --role worker",
            env=("PARLEY_WORKER_SECRET",),
        ),
    },
)
