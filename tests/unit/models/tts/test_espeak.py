import pytest

from parley.core.errors import ConfigError
from parley.models.tts import SpeechPiece
from parley.models.tts.espeak import EspeakSettings, EspeakTts, _open


def speak(engine: EspeakTts, text: str) -> list[SpeechPiece]:
    pieces: list[SpeechPiece] = []
    engine.synthesize(text, lambda piece: pieces.append(piece) is None)
    return pieces


def samples(pieces: list[SpeechPiece]) -> int:
    return sum(len(piece.pcm) // 2 for piece in pieces)


def test_the_rate_is_the_engines_own():
    assert EspeakTts().rate_hz == 22_050


def test_engines_with_other_languages_share_the_process_without_mixing_voices():
    english, german = EspeakTts(), EspeakTts(EspeakSettings(voice="de"))
    alone = samples(speak(english, "Guten Tag, wie geht es"))
    in_german = samples(speak(german, "Guten Tag, wie geht es"))
    again = samples(speak(english, "Guten Tag, wie geht es"))
    # espeak's own noise moves the edges by some samples from one run to the next.
    assert again == pytest.approx(alone, abs=100)
    assert abs(in_german - alone) > 500


def test_german_text_is_not_read_by_english_rules():
    words = [
        word.text
        for piece in speak(EspeakTts(EspeakSettings(voice="de")), "Wie geht es Frau Müller?")
        for word in piece.words
    ]
    assert words == ["Wie", "geht", "es", "Frau", "Müller?"]


def test_words_that_are_slurred_into_one_event_share_its_span():
    words = [word for piece in speak(EspeakTts(), "One of the fees.") for word in piece.words]
    assert [word.text for word in words] == ["One", "of", "the", "fees."]
    assert [word.estimated for word in words] == [False, True, True, False]


def test_a_faster_voice_is_shorter():
    slow, fast = (
        sum(
            len(piece.pcm)
            for piece in speak(EspeakTts(EspeakSettings(words_per_minute=wpm)), "One two three four.")
        )
        for wpm in (120, 300)
    )
    assert fast < 0.7 * slow


def test_an_unknown_voice_is_a_config_error():
    with pytest.raises(ConfigError, match="no voice 'xx-klingon'"):
        EspeakTts(EspeakSettings(voice="xx-klingon"))


def test_a_missing_library_names_the_package_to_install():
    with pytest.raises(ConfigError, match="apt-get install libespeak-ng1"):
        _open("libnot-installed.so.1")
