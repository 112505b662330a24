"""Engines with many streams in a worker: recognisers and voices. See ``hosting``.

Each stream is a conversation: its calls are in a thread of its own, and the engines that are hosted here are
shared by threads. What a stream took goes back when its conversation is over, however that ends.
"""

import gc
from collections.abc import Callable, Mapping
from typing import Any

from core.errors import PeerError
from models.stt import SpeechStream, SpeechToText
from models.stt.hosted.codec import of_transcript
from models.tts import SpeechPiece, TextToSpeech
from models.tts.hosted.codec import of_piece
from protocols.worker_link import Type
from runtime.engine_host import begin
from serving.worker.hosting import Answer, Emit, Hosted, Talk

# Longer than anything that a bot says in one breath.
MOST_CHARACTERS = 10_000


class _Streams:
    """What both kinds have in common."""

    kind = ""
    is_duplex = False
    unit_ms: int | None = None

    def __init__(self, name: str, rate_hz: int, streams: int) -> None:
        self.slots = streams
        self._offers = {"kind": self.kind, "name": name, "slots": streams, "rate_hz": rate_hz}
        # The weights live as long as the process: keep the collector from walking them.
        gc.collect()
        gc.freeze()

    def offers(self) -> dict[str, Any]:
        """See ``Hosted``."""
        return self._offers

    def close(self) -> None:
        """See ``Hosted``: the weights go with the process."""


class HostedRecogniser(_Streams):
    """A recogniser.

    Args:
        engine: with its weights.
        name: of the engine.
        streams: at a time.
    """

    kind = "stt"

    def __init__(self, engine: SpeechToText, name: str, *, streams: int) -> None:
        # Whatever keeps it from having streams is found before it says that it is ready.
        engine.open_stream().close()
        super().__init__(name, engine.rate_hz, streams)
        self._engine = engine

    def open(self) -> Talk:
        """See ``Hosted``."""
        return _Listening(self._engine.open_stream())


class HostedVoice(_Streams):
    """A voice.

    Args:
        engine: with its weights.
        name: of the engine.
        streams: at a time.
    """

    kind = "tts"

    def __init__(self, engine: TextToSpeech, name: str, *, streams: int) -> None:
        super().__init__(name, engine.rate_hz, streams)
        self._engine = engine

    def open(self) -> Talk:
        """See ``Hosted``."""
        return _Speaking(self._engine)


class _Listening:
    def __init__(self, stream: SpeechStream) -> None:
        self._stream = stream
        self.is_between = True

    def ask(self, type_: Type, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        match type_:
            case Type.START:
                self.is_between = False
                begin(self._stream)
            case Type.AUDIO:
                partial = self._stream.feed(payload)
                return {"partial": None if partial is None else of_transcript(partial)}, b""
            case Type.FINISH:
                self.is_between = True
                return {"transcript": of_transcript(self._stream.finish())}, b""
            case Type.DISCARD:
                self.is_between = True
                self._stream.discard()
            case _:
                raise PeerError(f"a recogniser does not {type_.value}")
        return {}, b""

    def stop(self) -> None:
        # A call takes a piece of audio, and no longer.
        pass

    def close(self) -> None:
        self._stream.close()


class _Speaking:
    # Of one clause nothing is left for the next.
    is_between = True

    def __init__(self, engine: TextToSpeech) -> None:
        self._engine = engine

    def ask(self, type_: Type, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        text = facts.get("text")
        if type_ is not Type.SPEAK or not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise PeerError(f"a voice does not {type_.value} this")

        def sink(piece: SpeechPiece) -> bool:
            return emit(*of_piece(piece))

        return {"spoken": self._engine.synthesize(text, sink)}, b""

    def stop(self) -> None:
        # What is emitted for a conversation that is over says so.
        pass

    def close(self) -> None:
        pass


# How an engine of a registry is hosted, by its kind.
HOSTING: Mapping[str, Callable[..., Hosted]] = {"stt": HostedRecogniser, "tts": HostedVoice}
