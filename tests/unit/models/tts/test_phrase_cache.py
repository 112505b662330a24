"""A voice with a cache of phrases that it repeats."""

import pytest

from parley.core.errors import EngineError
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.models.tts.clauses import ClauseSettings
from parley.models.tts.fallback import FallbackTts
from parley.models.tts.phrase_cache import PhraseCache
from tests.fakes.tts import ToneTts

GREETING = "Hello, this is Parley."


def speak(engine: TextToSpeech, text: str) -> list[SpeechPiece]:
    pieces: list[SpeechPiece] = []
    assert engine.synthesize(text, lambda piece: pieces.append(piece) is None)
    return pieces


def test_a_phrase_is_synthesised_once_and_then_replayed_with_its_word_times():
    voice = ToneTts()
    engine = PhraseCache(voice, [GREETING])
    first = speak(engine, GREETING)
    assert speak(engine, f" {GREETING} ") == first == speak(ToneTts(), GREETING)
    assert voice.clauses == [GREETING]


def test_what_was_not_declared_is_not_kept():
    voice = ToneTts()
    engine = PhraseCache(voice, [GREETING])
    speak(engine, "Your balance is five dollars.")
    speak(engine, "Your balance is five dollars.")
    assert len(voice.clauses) == 2
    assert engine.kept_bytes == 0


def test_a_phrase_that_was_cut_off_is_spoken_anew():
    voice = ToneTts()
    engine = PhraseCache(voice, [GREETING])
    assert not engine.synthesize(GREETING, lambda _piece: False)
    assert engine.kept_bytes == 0
    assert speak(engine, GREETING) == speak(ToneTts(), GREETING)


def test_a_replay_stops_when_the_sink_says_so():
    engine = PhraseCache(ToneTts(), [GREETING])
    whole = speak(engine, GREETING)
    taken: list[SpeechPiece] = []

    def two(piece: SpeechPiece) -> bool:
        taken.append(piece)
        return len(taken) < 2

    assert not engine.synthesize(GREETING, two)
    assert taken == whole[:2]


def test_a_phrase_that_is_too_long_is_not_kept():
    engine = PhraseCache(ToneTts(word_ms=100), [GREETING], max_phrase_ms=399)
    speak(engine, GREETING)
    assert engine.kept_bytes == 0
    engine = PhraseCache(ToneTts(word_ms=100), [GREETING], max_phrase_ms=400)
    speak(engine, GREETING)
    assert engine.kept_bytes == 400 * 32


def test_a_long_phrase_is_kept_in_the_clauses_that_it_is_spoken_in():
    voice = ToneTts()
    clauses = ClauseSettings(max_chars=40)
    engine = PhraseCache(voice, ["I can tell you about cards. I can tell you about fees."], clauses=clauses)
    engine.warm()
    assert sorted(voice.clauses) == ["I can tell you about cards.", "I can tell you about fees."]
    speak(engine, "I can tell you about fees.")
    assert len(voice.clauses) == 2


def test_warming_speaks_every_phrase_once_and_ends_when_it_is_closed():
    voice = ToneTts()
    engine = PhraseCache(voice, [GREETING, "One moment.", "", " "])
    engine.warm()
    engine.warm()
    assert voice.clauses == [GREETING, "One moment."]
    closing = PhraseCache(ToneTts(before_piece=lambda: closing.close()), [GREETING, "One moment."])
    closing.warm()
    assert closing.kept_bytes == 0


def test_what_the_second_voice_says_in_a_bad_moment_is_not_kept():
    cache = PhraseCache(ToneTts(fail_after_pieces=0), [GREETING])
    second = ToneTts()
    engine = FallbackTts(cache, second)
    speak(engine, GREETING)
    speak(engine, GREETING)
    assert len(second.clauses) == 2
    with pytest.raises(EngineError):
        cache.warm()


def test_kept_audio_can_be_had_without_speaking():
    engine = ToneTts()
    cache = PhraseCache(engine, ["Mhm."])
    assert cache.kept("Mhm.") is None
    cache.warm()
    spoken = list(engine.clauses)
    pieces: list[bytes] = []
    ToneTts().synthesize("Mhm.", lambda piece: pieces.append(piece.pcm) or True)
    assert cache.kept(" Mhm. ") == b"".join(pieces)
    assert cache.kept("Anything else.") is None
    assert engine.clauses == spoken
