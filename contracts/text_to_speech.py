"""Contract of speech synthesis engines (``models.tts``)."""

import threading

import numpy as np
import pytest

from parley.models.tts import SpeechPiece, TextToSpeech

# Amplitude of 16-bit samples that is audible.
AUDIBLE = 164

CLAUSE = "The monthly fee is five dollars, and you can cancel."
AWKWARD = '– "Your balance" is $1,250.50 at 3 p.m. & rising 🙂, e.g. see https://www.example.com/help !'


def speak(engine: TextToSpeech, text: str) -> tuple[bool, list[SpeechPiece]]:
    """Return the result of a synthesis, and its pieces."""
    pieces: list[SpeechPiece] = []

    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece)
        return True

    return engine.synthesize(text, sink), pieces


def samples(pieces: list[SpeechPiece]) -> np.ndarray:
    """Return the samples of pieces."""
    return np.frombuffer(b"".join(piece.pcm for piece in pieces), dtype="<i2").astype(int)


def words(pieces: list[SpeechPiece]) -> list[str]:
    """Return the words of pieces."""
    return [word.text for piece in pieces for word in piece.words]


class TextToSpeechContract:
    """Tests of a voice; needs a fixture ``engine``."""

    def test_a_clause_is_spoken_in_several_pieces_of_whole_samples(self, engine: TextToSpeech) -> None:
        spoken, pieces = speak(engine, CLAUSE)
        assert spoken
        assert len(pieces) > 1
        assert all(len(piece.pcm) % 2 == 0 for piece in pieces)
        seconds = len(samples(pieces)) / engine.rate_hz
        assert 0.9 < seconds < 6

    def test_the_level_is_audible_and_not_clipped(self, engine: TextToSpeech) -> None:
        peak = np.abs(samples(speak(engine, CLAUSE)[1])).max()
        assert 5_000 < peak < 32_700

    @pytest.mark.parametrize("text", [CLAUSE, AWKWARD])
    def test_the_words_are_those_of_the_text_each_once_in_order(
        self, engine: TextToSpeech, text: str
    ) -> None:
        assert " ".join(words(speak(engine, text)[1])) == " ".join(text.split())

    def test_word_times_follow_each_other_within_the_audio(self, engine: TextToSpeech) -> None:
        _, pieces = speak(engine, CLAUSE)
        times = [word for piece in pieces for word in piece.words]
        total_ms = len(samples(pieces)) * 1000 / engine.rate_hz
        assert times[0].start_ms < 60
        assert all(word.start_ms < word.end_ms for word in times)
        assert all(a.end_ms <= b.start_ms + 1 for a, b in zip(times, times[1:], strict=False))
        assert total_ms - 260 < times[-1].end_ms <= total_ms + 1

    def test_a_word_is_reported_no_later_than_the_piece_in_which_it_ends(self, engine: TextToSpeech) -> None:
        _, pieces = speak(engine, CLAUSE)
        sent = 0
        for piece in pieces:
            sent_ms = sent * 1000 / engine.rate_hz
            assert all(word.end_ms >= sent_ms - 1 for word in piece.words)
            sent += len(piece.pcm) // 2

    def test_speech_begins_within_twenty_milliseconds_of_the_first_sample(self, engine: TextToSpeech) -> None:
        audible = np.flatnonzero(np.abs(samples(speak(engine, CLAUSE)[1])) > AUDIBLE)
        assert audible[0] <= 0.020 * engine.rate_hz

    def test_a_sink_that_says_no_stops_the_engine_at_once_and_the_next_clause_is_whole(
        self, engine: TextToSpeech
    ) -> None:
        whole = len(samples(speak(engine, CLAUSE)[1]))
        taken: list[SpeechPiece] = []

        def sink(piece: SpeechPiece) -> bool:
            taken.append(piece)
            return len(taken) < 2

        assert engine.synthesize(CLAUSE, sink) is False
        assert len(taken) == 2
        assert len(samples(taken)) < whole / 2
        spoken, pieces = speak(engine, CLAUSE)
        assert spoken and words(pieces) == CLAUSE.split()

    @pytest.mark.parametrize("text", ["", "   \n", "...", "🙂 – !", "()"])
    def test_text_without_anything_to_pronounce_is_silence(self, engine: TextToSpeech, text: str) -> None:
        spoken, pieces = speak(engine, text)
        assert spoken
        assert not samples(pieces).any()

    def test_what_the_sink_raises_reaches_the_caller_and_the_engine_lives(self, engine: TextToSpeech) -> None:
        def broken(piece: SpeechPiece) -> bool:
            raise ValueError("sink")

        with pytest.raises(ValueError, match="sink"):
            engine.synthesize(CLAUSE, broken)
        assert words(speak(engine, "Hello there.")[1]) == ["Hello", "there."]

    def test_several_threads_speak_at_once_without_mixing(self, engine: TextToSpeech) -> None:
        texts = ["One fee.", "Two fees here.", "Three of the fees.", "Four."]
        results: dict[str, list[str]] = {}

        def run(text: str) -> None:
            for _ in range(3):
                results[text] = words(speak(engine, text)[1])

        threads = [threading.Thread(target=run, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert results == {text: text.split() for text in texts}
