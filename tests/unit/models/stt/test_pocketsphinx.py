from pathlib import Path

import pytest

from parley.core.errors import EngineError
from parley.models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt, channel_mean, spoken
from tests.voices import say, silence

CACHE = Path("out/test-cache")


def understand(engine: PocketsphinxStt, pcm: bytes) -> str:
    stream = engine.open_stream()
    stream.start()
    for at in range(0, len(pcm), 1_280):
        stream.feed(pcm[at : at + 1_280])
    return stream.finish().text


def test_marks_and_second_pronunciations_are_not_words() -> None:
    assert spoken("<s> the(2) <sil> [NOISE] card ++BREATH++ a(3) </s>") == ["the", "card", "a"]


def test_a_question_about_the_documents_is_understood() -> None:
    engine = PocketsphinxStt(
        PocketsphinxSettings(cache_dir=CACHE, sentences=("Northwind replaces a stolen card.",))
    )
    question = silence(250) + say("how much is a replacement card") + silence(200)
    assert understand(engine, question) == "how much is a replacement card"


def test_no_decoder_left_is_an_error_until_one_is_free() -> None:
    engine = PocketsphinxStt(PocketsphinxSettings(common_words=100, max_decoders=1, cache_dir=CACHE))
    one, other = engine.open_stream(), engine.open_stream()
    one.start()
    with pytest.raises(EngineError) as caught:
        other.start()
    assert caught.value.retryable
    one.finish()
    other.start()
    other.close()


def test_a_long_utterance_is_heard_in_parts_with_one_time_line() -> None:
    settings = PocketsphinxSettings(common_words=500, max_segment_ms=2_000, cache_dir=CACHE)
    stream = PocketsphinxStt(settings).open_stream()
    sentence = silence(200) + say("what is your name") + silence(700)
    stream.start()
    partials = [stream.feed((sentence * 3)[at : at + 640]) for at in range(0, len(sentence) * 3, 640)]
    heard = stream.finish()
    times = [word.start_ms for word in heard.words]
    assert times == sorted(times)
    assert times[-1] > len(sentence) * 2 / 32
    assert heard.text.count("name") == 3
    # A partial keeps the words of the closed parts.
    assert [partial for partial in partials if partial][-1].text.count("name") == 3


def test_a_measured_channel_goes_nearly_all_the_way_to_what_was_heard() -> None:
    # 150 frames moved the decoder's mean by 150 / 650 of the distance to 53.
    assert channel_mean("40,3", "43.0,3.0,0.0", 150) == "49.7500,3.0000,0.0000"


def errors(expected: str, heard: str) -> int:
    """Return the word insertions, deletions and substitutions (Levenshtein)."""
    said, got = expected.split(), heard.split()
    row = list(range(len(got) + 1))
    for count, word in enumerate(said, start=1):
        before, row[0] = row[:], count
        for at, other in enumerate(got, start=1):
            row[at] = min(before[at] + 1, row[at - 1] + 1, before[at - 1] + (word != other))
    return row[-1]


@pytest.mark.parametrize(("voice", "bound"), [("rms", 0.15), ("awb", 0.35)])
def test_the_first_words_of_a_new_caller_are_understood(voice: str, bound: float) -> None:
    engine = PocketsphinxStt(PocketsphinxSettings(cache_dir=CACHE))
    questions = (
        "how do i block my card if i lost it",
        "what is the interest rate on the savings account",
        "when does the branch open on saturday",
        "how do i report a payment that i did not make",
    )
    wrong = sum(
        errors(text, understand(engine, silence(250) + say(text, voice) + silence(200))) for text in questions
    )
    rate = wrong / sum(len(text.split()) for text in questions)
    print(f"{voice}: word error rate of first utterances {rate:.3f}")
    # Without measuring the channel: 0.17 and 0.33 over 20 questions.
    assert rate < bound
