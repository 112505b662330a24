import numpy as np
import pytest

from parley.models.stt.voice import VoiceFilter, quietest_cut
from tests.voices import say, silence, tone


@pytest.fixture(scope="module")
def voices() -> VoiceFilter:
    return VoiceFilter()


@pytest.mark.parametrize("word", ["no", "yes", "hi", "stop"])
@pytest.mark.parametrize("voice", ["rms", "awb", "slt"])
def test_the_shortest_answers_are_heard(voices: VoiceFilter, word: str, voice: str) -> None:
    utterance = voices.open()
    for piece in (silence(250), say(word, voice), silence(200)):
        utterance.hear(piece)
    assert utterance.heard


def test_silence_noise_and_clicks_are_no_voice(voices: VoiceFilter) -> None:
    rng = np.random.default_rng(1)
    noise = (rng.standard_normal(16_000) * 300).astype("<i2").tobytes()
    click = silence(200) + (rng.standard_normal(400) * 9_000).astype("<i2").tobytes() + silence(300)
    for audio in (silence(1_000), noise, click):
        utterance = voices.open()
        assert not any(utterance.hear(audio[at : at + 640]) for at in range(0, len(audio), 640))


def test_utterances_do_not_share_what_they_heard(voices: VoiceFilter) -> None:
    one, other = voices.open(), voices.open()
    audio = silence(200) + say("what is your pin")
    for at in range(0, len(audio), 640):
        one.hear(audio[at : at + 640])
        other.hear(silence(20))
    assert one.heard
    assert not other.heard


def test_a_cut_lies_in_the_pause() -> None:
    cut, power = quietest_cut(tone(500) + silence(100) + tone(400), 1_000)
    assert 500 * 32 <= cut <= 600 * 32
    assert cut % 2 == 0
    assert power < 1e-4


def test_the_last_of_two_pauses_is_cut_in() -> None:
    cut, _ = quietest_cut((tone(300) + silence(100)) * 2 + tone(300), 1_000)
    assert 700 * 32 <= cut <= 800 * 32


def test_a_pause_before_the_range_is_not_cut_in() -> None:
    cut, _ = quietest_cut(silence(500) + tone(500), 300)
    assert cut >= 700 * 32


def test_audio_too_short_to_look_at_is_kept_whole() -> None:
    assert quietest_cut(silence(20), 1_000) == (640, 1.0)
