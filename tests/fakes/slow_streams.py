"""Engines with many streams whose calls wait for the test."""

import threading
from collections.abc import Callable

from parley.core.errors import EngineError
from parley.core.media import WordTime
from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece

WAITS_S = 10


class GatedStt:
    """Recogniser whose ``feed`` blocks while ``gate`` is closed, if the audio begins with the byte 1.

    Attributes:
        open: number of open streams.
        gate: open at first.
        entered: set when a call waits.
    """

    rate_hz = 16_000

    def __init__(self) -> None:
        self.open = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self._lock = threading.Lock()

    def open_stream(self) -> "GatedStream":
        with self._lock:
            self.open += 1
        return GatedStream(self)

    def closed(self) -> None:
        with self._lock:
            self.open -= 1


class GatedStream:
    """The stream of one caller; its words are the numbers of bytes that it was fed with."""

    def __init__(self, engine: GatedStt) -> None:
        self._engine = engine
        self._fed: list[int] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._fed = []

    def feed(self, pcm: bytes) -> Transcript | None:
        if self._fed is None:
            raise EngineError("no utterance is open", engine="gated", retryable=False)
        if pcm[:1] == b"\1":
            self._engine.entered.set()
            assert self._engine.gate.wait(WAITS_S)
        if pcm[:1] == b"\2":
            raise ValueError("a defect of the engine")
        self._fed.append(len(pcm))
        return Transcript(" ".join(map(str, self._fed)))

    def finish(self) -> Transcript:
        if self._fed is None:
            raise EngineError("no utterance is open", engine="gated", retryable=False)
        heard, self._fed = self._fed, None
        words = tuple(WordTime(str(count), at * 10, at * 10 + 10) for at, count in enumerate(heard))
        return Transcript(" ".join(word.text for word in words), words, 1.0 if words else 0.0, final=True)

    def discard(self) -> None:
        self._fed = None

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._engine.closed()


class GatedTts:
    """Voice that makes pieces of 20 ms of the clause's first letter, as many as the clause has letters.

    Args:
        before_piece: called with the clause and the number of the next piece.
    """

    rate_hz = 16_000

    def __init__(self, before_piece: Callable[[str, int], None] = lambda _text, _number: None) -> None:
        self._before_piece = before_piece
        # Number of pieces made of each clause, and whether the sink stopped it.
        self.made: dict[str, int] = {}
        self.stopped: list[str] = []

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        for number in range(len(text)):
            self._before_piece(text, number)
            self.made[text] = number + 1
            words = (WordTime(text, 0, 20 * len(text)),) if number == 0 else ()
            if not sink(SpeechPiece(text[:1].encode() * 640, words)):
                self.stopped.append(text)
                return False
        return True
