"""Full-duplex speech models: take a unit of audio, return a unit of speech or silence.

An engine is called once a unit, whether or not the caller speaks, and decides itself when to talk. For each
unit:

    prefill(audio, frames)   audio and pictures received
    generate(force_listen)   listen, or speak: text and audio of this unit
    finalize()               work that can wait until the result has left (terminators, the context's window)

``prepare`` is called once before, ``cleanup`` once after; ``stop`` ends a running generation. ``phases``
defines the legal order, and every engine keeps to it. A host holds the weights; an engine is one
conversation.

All methods except ``stop`` block, and are called from one thread at a time. ``stop`` may be called from any
thread at any time and returns at once; the running call then returns within a token.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from parley.core.registry import Registry, Row
from parley.core.speech_reports import SpeechReport
from parley.core.units import Vote

# Rate of the reference voices of a preparation, whatever the rate of the engine is.
VOICE_RATE_HZ = 16_000
SILENCE = np.zeros(0, dtype=np.float32)
SILENCE.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Start of a conversation.

    Attributes:
        system_prompt: description of the bot.
        llm_ref_audio: reference voice of the language model, float32, (samples,), at ``VOICE_RATE_HZ``; None
            for its own.
        tts_ref_audio: reference voice of the vocoder, in the same format.
        history: earlier messages, oldest first, as (role, text), for a conversation that begins anew because
            its context was full.
        settings: settings of the engine, by name; an unknown one is refused.
    """

    system_prompt: str = ""
    llm_ref_audio: np.ndarray | None = None
    tts_ref_audio: np.ndarray | None = None
    history: tuple[tuple[str, str], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitResult:
    """Result of a unit.

    Attributes:
        vote: decision of the engine.
        text: text spoken in this unit.
        audio: float32, (samples,), at the engine's output rate, in [-1, 1]; empty for silence.
        end_of_turn: this unit is the last of the reply.
        written: the whole text to be spoken, as far as it is known; empty from an engine that does not know
            it.
        is_aside: the speech is not part of the conversation, such as a phrase that covers a silence.
        broke_off: words of ``written`` after this unit's are missing, because the voice failed.
        n_tokens: tokens of the language model.
        n_tts_tokens: tokens of the voice.
        cost_prefill_ms: time for reading audio and pictures.
        cost_llm_ms: time of the language model.
        cost_tts_ms: time of the voice.
        kv_tokens: length of the context afterwards; 0 from an engine without one.
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
        """True when the bot is silent in the unit."""
        return self.vote in (Vote.LISTEN, Vote.YIELD)


class OmniEngine(Protocol):
    """Engine of one conversation. Not thread-safe except for ``stop``.

    Attributes:
        unit_ms: length of a unit.
        first_unit_ms: length of the first one; some encoders need more to begin with.
        input_rate_hz: rate of received audio.
        output_rate_hz: rate of speech.
        context_units: approximate number of units after which the context is full; None: never.
        takes_frames: the engine takes pictures.
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
            IllegalTransition: a conversation is under way.
        """
        ...

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Read a unit of audio and pictures.

        Args:
            audio: float32, (samples,), a unit at ``input_rate_hz``, in [-1, 1]; a shorter one is padded with
                silence at the front; empty when only frames are given.
            frames: uint8, (height, width, 3), RGB, in order.

        Raises:
            ShapeError: another shape, dtype or length; neither audio nor frames; values that are not finite.
            EngineError: the engine failed.
            IllegalTransition: the previous unit is not finalized.
        """
        ...

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Decide on this unit, and return its text and audio.

        Args:
            force_listen: be silent, and abandon the current reply.

        Raises:
            EngineError: the engine failed.
            IllegalTransition: no unit was read before.
        """
        ...

    def finalize(self) -> None:
        """End the unit, after which the next one may begin.

        Raises:
            EngineError: the engine failed.
            IllegalTransition: there was no unit.
        """
        ...

    def stop(self) -> None:
        """End a running generation. All further units are silent until ``cleanup``. Never raises."""
        ...

    def cleanup(self) -> None:
        """Release the resources of the conversation; another may be prepared afterwards. Allowed at
        any time.
        """
        ...


@runtime_checkable
class HearsWords(Protocol):
    """Engine that speaks text from other components and is notified of transcripts."""

    def on_words(self, words: SpeechReport) -> None:
        """Receive the report of a specialist; called from any thread."""
        ...

    def on_settled(self) -> None:
        """Receive the notice that the pending answer begins, or does not come; called from any thread."""
        ...


@runtime_checkable
class EndsTurns(Protocol):
    """Engine that can be notified that the caller's turn is over."""

    def end_turn(self) -> None:
        """Mark the end of the caller's turn. Callable from any thread."""
        ...


class OmniHost(Protocol):
    """Owner of the shared weights.

    A host whose engines follow choices of a caller names them in ``choices``.

    Attributes:
        sessions: greatest number of open engines; None for any number.
        takes_frames: its engines take pictures.
    """

    sessions: int | None
    takes_frames: bool

    def open_engine(self) -> OmniEngine:
        """Return an engine for one conversation.

        Raises:
            CapacityError: the limit of open engines is reached.
        """
        ...

    def close(self) -> None:
        """Release the weights. No engine may be open."""
        ...


@runtime_checkable
class Placing(Protocol):
    """Host of one conversation, whose engine is in a worker that has to be acquired first.

    Attributes:
        lost: set when the acquired worker is gone.
    """

    @property
    def lost(self) -> asyncio.Event: ...

    async def place(self) -> None:
        """Wait for a worker; ``open_engine`` returns its engine afterwards.

        Raises:
            CapacityError: no worker will become available.
        """
        ...

    def leave(self) -> None:
        """Stop waiting for a worker, because the call continues elsewhere. Never blocks."""
        ...

    def over(self, *, well: bool) -> None:
        """Report that the engine was released; ``well`` is false when it failed. Never blocks."""
        ...


OMNI: Registry[OmniHost] = Registry(
    "omni engine",
    {
        "two_tier": Row(
            "parley.models.omni.two_tier.engine:TwoTierHost",
            "a policy decides every 80 ms; the deployment's language model and voice produce the content",
        ),
        "moshi": Row(
            "parley.models.omni.moshi.host:MoshiHost",
            "listens and speaks in frames of 80 ms, English",
            extra="moshi",
        ),
        "personaplex": Row(
            "parley.models.omni.personaplex.host:PersonaPlexHost",
            "Moshi with a role and a voice, in frames of 80 ms, English",
            extra="moshi",
        ),
        "minicpm_o": Row(
            "parley.models.omni.minicpm_o.engine:MiniCpmOHost",
            summary="MiniCPM-o 4.5 on this machine, in a process and Python environment of its own",
        ),
        "minicpm_worker": Row(
            "parley.models.omni.minicpm_worker.engine:MiniCpmWorkerHost",
            summary="MiniCPM-o 4.5 in a worker of its own server, or behind that server's gateway",
        ),
        "worker": Row(
            "parley.models.omni.hosted.engine:WorkerOmniHost",
            "a self-contained engine in its own process: python runner.py --role worker",
            env=("PARLEY_WORKER_SECRET",),
        ),
    },
)
