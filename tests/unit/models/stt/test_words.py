import pytest

from parley.core.media import WordTime
from parley.models.stt.words import fit_words, plain_text, plain_words, spread_words


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("What is your PIN?", "what is your pin"),
        ("Don't, it\u2019s 3.5% — or $5!", "don't it's 3.5% or $5"),
        ("[BLANK_AUDIO] (soft music) Hello. <|0.00|> *laughs*", "hello"),
        ("a lone ( is no reason to stop", "a lone is no reason to stop"),
        ("...", ""),
        ("", ""),
        ("Größe 12, bitte", "größe 12 bitte"),
        ("Thank you, good-by.", "thank you goodbye"),
        ("Bye-bye to twenty-five and 0-1!", "bye bye to twenty five and 0-1"),
    ],
)
def test_a_sentence_becomes_the_words_that_were_spoken(written: str, spoken: str) -> None:
    assert plain_text(written) == spoken


def test_timed_words_lose_remarks_over_several_words_and_keep_their_times() -> None:
    written = ["(upbeat", "music)", " What", " is", " -", " it?"]
    words = [WordTime(text, at * 100, at * 100 + 90, 0.5) for at, text in enumerate(written)]
    assert plain_words(words) == (
        WordTime("what", 200, 290, 0.5),
        WordTime("is", 300, 390, 0.5),
        WordTime("it", 500, 590, 0.5),
    )


def test_times_are_put_in_order_inside_the_utterance() -> None:
    words = [WordTime("a", 50, 20), WordTime("b", 10, 300), WordTime("c", 900, 1_200), WordTime("d", 990, 0)]
    fitted = fit_words(words, 1_000)
    assert [(word.start_ms, word.end_ms) for word in fitted] == [
        (50, 51),
        (51, 300),
        (900, 999),
        (999, 1_000),
    ]


def test_good_times_are_left_alone() -> None:
    words = (WordTime("a", 50, 200), WordTime("b", 250, 300))
    assert fit_words(words, 300) == words


def test_more_words_than_milliseconds_still_follow_each_other() -> None:
    fitted = fit_words([WordTime("a", 0, 0)] * 3, 1)
    assert [(word.start_ms, word.end_ms) for word in fitted] == [(0, 1), (1, 2), (2, 3)]


def test_estimated_times_share_the_span_by_letters_and_say_so() -> None:
    words = list(spread_words("no certainly", 1_000, 2_300))
    assert words == [
        WordTime("no", 1_000, 1_300, estimated=True),
        WordTime("certainly", 1_300, 2_300, estimated=True),
    ]
