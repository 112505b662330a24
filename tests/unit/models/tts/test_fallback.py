"""A fallback voice: nothing is lost, nothing is spoken twice."""

from collections.abc import Callable

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.tts import SpeechPiece
from parley.models.tts.fallback import FallbackTts
from tests.fakes.tts import ToneTts


def speak(engine: FallbackTts, text: str) -> list[SpeechPiece]:
    pieces: list[SpeechPiece] = []

    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece)
        return True

    assert engine.synthesize(text, sink)
    return pieces


def length(pieces: list[SpeechPiece]) -> int:
    return sum(len(piece.pcm) for piece in pieces) // 2


def test_the_second_voice_says_what_the_first_cannot_begin():
    first, second = ToneTts(fail_after_pieces=0), ToneTts()
    pieces = speak(FallbackTts(first, second), "One two three.")
    assert [word.text for piece in pieces for word in piece.words] == ["One", "two", "three."]
    assert (len(first.clauses), len(second.clauses)) == (1, 1)


def test_a_clause_that_broke_off_is_not_begun_again():
    second = ToneTts()
    engine = FallbackTts(ToneTts(fail_after_pieces=3), second)
    with pytest.raises(EngineError):
        speak(engine, "One two three.")
    assert second.clauses == []


def test_a_first_voice_that_recovers_is_heard_again():
    first = ToneTts(fail_after_pieces=0)
    engine = FallbackTts(first, ToneTts())
    speak(engine, "One.")
    first.fail_after_pieces = None
    speak(engine, "Two.")
    assert first.clauses == ["One.", "Two."]


def test_a_first_voice_that_is_gone_for_good_is_not_asked_again():
    class Gone(ToneTts):
        def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
            self.clauses.append(text)
            raise EngineError("no library", engine="gone", retryable=False)

    first = Gone()
    engine = FallbackTts(first, ToneTts())
    speak(engine, "One.")
    speak(engine, "Two.")
    assert first.clauses == ["One."]


def test_the_second_voice_comes_at_the_rate_of_the_first():
    engine = FallbackTts(ToneTts(fail_after_pieces=0, rate_hz=16_000), ToneTts(rate_hz=22_050))
    pieces = speak(engine, "One two three.")
    assert abs(length(pieces) - 3 * 1_600) < 16
    tone = np.frombuffer(b"".join(piece.pcm for piece in pieces), dtype="<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(tone * np.hanning(len(tone))))
    assert abs(np.argmax(spectrum) * 16_000 / len(tone) - 440) < 5


def test_a_sink_that_says_no_stops_the_second_voice():
    second = ToneTts(rate_hz=22_050)
    engine = FallbackTts(ToneTts(fail_after_pieces=0), second)
    assert not engine.synthesize("One two three.", lambda _piece: False)
    assert second.stopped_at_ms
