"""Engines with many streams in a worker: recognisers, voices, language models (see ``hosting``).

Each stream is a conversation: its calls run in a thread of its own, and the engines that are hosted here are
shared by threads. The resources of a stream are released when its conversation is over, however that ends.
"""

import gc
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parley.core.errors import PeerError
from parley.models.hosted.speech import of_piece
from parley.models.llm.hosted.codec import of_answered, of_prefilled, to_asked
from parley.models.llm.kv.dialogue import GenerationResult, Prefilled
from parley.models.stt import SpeechStream, SpeechToText
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.protocols.facts import to_facts
from parley.runtime.engine_host import begin
from parley.runtime.engine_hosting.messages import MessageType
from parley.serving.worker.hosting import Answer, Emit, EngineSession, Hosted, LeaseHolder

if TYPE_CHECKING:
    from parley.models.llm.kv.causal import CausalLm

# Longer than any uninterrupted speech of a bot.
MOST_CHARACTERS = 10_000
# Interval of signs of progress to a client that waits for an answer.
SIGN_S = 1.0
# Digest that matches no context.
OF_NOTHING = ""


class _Streams:
    """Common part of all kinds."""

    kind = ""
    is_duplex = False
    unit_ms: int | None = None

    def __init__(self, name: str, streams: int, **offers: Any) -> None:
        self.slots = streams
        self._offers = {"kind": self.kind, "name": name, "slots": streams, **offers}
        # The weights live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()

    def offers(self) -> dict[str, Any]:
        """Return the facts about the engine (``Hosted``)."""
        return self._offers

    def forget(self, session_id: str) -> int:
        """Return 0 (``Hosted``): a stream leaves nothing."""
        return 0

    def close(self) -> None:
        """Do nothing (``Hosted``): the weights are released with the process."""


class HostedRecogniser(_Streams):
    """Recogniser with many streams.

    Args:
        engine: with its weights.
        name: of the engine.
        streams: maximum number of concurrent streams.
    """

    kind = "stt"

    def __init__(self, engine: SpeechToText, name: str, *, streams: int) -> None:
        # Detects a failure to open streams before the worker reports that it is ready.
        engine.open_stream().close()
        super().__init__(name, streams, rate_hz=engine.rate_hz)
        self._engine = engine

    def open(self, lessee: LeaseHolder) -> EngineSession:
        """Open a stream (``Hosted``)."""
        return _Listening(self._engine.open_stream())


class HostedVoice(_Streams):
    """Voice with many streams.

    Args:
        engine: with its weights.
        name: of the engine.
        streams: maximum number of concurrent streams.
    """

    kind = "tts"

    def __init__(self, engine: TextToSpeech, name: str, *, streams: int) -> None:
        super().__init__(name, streams, rate_hz=engine.rate_hz)
        self._engine = engine

    def open(self, lessee: LeaseHolder) -> EngineSession:
        """Open a stream (``Hosted``)."""
        return _Speaking(self._engine)


class HostedDialogues(_Streams):
    """Language model: a stream is a conversation, whose context is found again by its session.

    Args:
        engine: with its weights.
        name: of the engine.
        streams: maximum number of concurrent streams.
    """

    kind = "llm"

    def __init__(self, engine: "CausalLm", name: str, *, streams: int) -> None:
        super().__init__(
            name,
            streams,
            context_tokens=engine.settings.context_tokens,
            token_bytes=engine.token_bytes,
            kv_bytes=engine.memory_bytes,
            forgets=True,
        )
        self._engine = engine

    def offers(self) -> dict[str, Any]:
        """Return the facts about the engine (``Hosted``), and drop contexts that were left for long.

        The worker reports several times in a second, so no other clock is needed.
        """
        self._engine.forget_left()
        return super().offers()

    def open(self, lessee: LeaseHolder) -> EngineSession:
        """Open a stream (``Hosted``)."""
        return _Dialogue(self._engine, lessee)

    def forget(self, session_id: str) -> int:
        """Drop the context of a deleted session (``Hosted``)."""
        return int(self._engine.drop(self._engine.scope(session_id)))


class _Listening:
    def __init__(self, stream: SpeechStream) -> None:
        self._stream = stream
        self.is_between = True

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        match type_:
            case MessageType.START:
                self.is_between = False
                begin(self._stream)
            case MessageType.AUDIO:
                partial = self._stream.feed(payload)
                return {"partial": None if partial is None else to_facts(partial)}, b""
            case MessageType.FINISH:
                self.is_between = True
                return {"transcript": to_facts(self._stream.finish())}, b""
            case MessageType.DISCARD:
                self.is_between = True
                self._stream.discard()
            case _:
                raise PeerError(f"a recogniser does not support {type_.value}")
        return {}, b""

    def stop(self) -> None:
        # A call lasts no longer than the processing of one piece of audio.
        pass

    def close(self) -> None:
        self._stream.close()


class _Speaking:
    # A clause leaves no state for the next one.
    is_between = True

    def __init__(self, engine: TextToSpeech) -> None:
        self._engine = engine

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        text = facts.get("text")
        if type_ is not MessageType.SPEAK or not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise PeerError(f"a voice does not support {type_.value} for this")

        def sink(piece: SpeechPiece) -> bool:
            return emit(*of_piece(piece))

        return {"spoken": self._engine.synthesize(text, sink)}, b""

    def stop(self) -> None:
        # A piece that is emitted for a conversation that is over returns False.
        pass

    def close(self) -> None:
        pass


class _Dialogue:
    # The context is found again here or, with more time, rebuilt anywhere.
    is_between = True

    def __init__(self, engine: "CausalLm", lessee: LeaseHolder) -> None:
        self._engine = engine
        self._lessee = lessee
        # Derived from the session in the lease's token: no other context has this root.
        self._scope = engine.scope(lessee.session_id)
        self._stopped = threading.Event()

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        self._stopped.clear()
        match type_:
            case MessageType.PREFILL | MessageType.GENERATE:
                answered = self._answered(facts, payload, emit, only_reads=type_ is MessageType.PREFILL)
                if answered is None:
                    return {"handle": None}, b""
                return of_answered(answered, self._lessee.worker, self._lessee.incarnation), b""
            case MessageType.DISCARD:
                self._engine.forget(self._scope)
                return {}, b""
            case _:
                raise PeerError(f"a language model does not support {type_.value}")

    def _answered(
        self, facts: Mapping[str, Any], payload: bytes, emit: Emit, *, only_reads: bool
    ) -> GenerationResult | None:
        """Return the answer to a request; None: it was stopped before all of it was read."""
        asked, handle = to_asked(facts, payload)
        mine = (self._lessee.worker, self._lessee.incarnation)
        if handle is not None and (handle.worker, handle.incarnation) != mine:
            # A handle of an ended process, or of another worker: the model must refuse it like any other
            # invalid one.
            asked = replace(asked, condition=OF_NOTHING)
        is_read = False
        signed_s = time.monotonic()

        def is_stopped() -> bool:
            nonlocal signed_s
            if self._stopped.is_set() or not emit({}, b""):
                return True
            now_s = time.monotonic()
            if now_s - signed_s >= SIGN_S:
                signed_s = now_s
                emit({"works": True}, b"")
            return is_read and only_reads

        answered = None
        with closing(self._engine.answer(self._scope, asked, is_stopped=is_stopped)) as pieces:
            for each in pieces:
                if isinstance(each, Prefilled):
                    is_read = True
                    counts = of_prefilled(each, is_conditional=asked.condition is not None)
                    emit({"prefilled": counts}, b"")
                elif isinstance(each, GenerationResult):
                    answered = each
                else:
                    emit({"text": each}, b"")
        return answered

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        # The session may return to this process.
        self._engine.leave(self._scope)


# Host of an engine of a registry, by its kind.
HOSTING: Mapping[str, Callable[..., Hosted]] = {
    "stt": HostedRecogniser,
    "tts": HostedVoice,
    "llm": HostedDialogues,
}
