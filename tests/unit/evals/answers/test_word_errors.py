from parley.evals.answers.word_errors import WordErrors

PAIRS = [("i forgot my pin", "i forgot my bin"), ("how do i hang up", "how do i hamlet")]


def test_a_word_is_heard_as_it_once_was() -> None:
    assert WordErrors(PAIRS, rate=1.0, seed=3).hear("Pin?") in ("bin", "")


def test_a_line_without_errors_hears_every_word() -> None:
    assert WordErrors(PAIRS, rate=0.0, seed=1).hear("I forgot my PIN!") == "i forgot my pin"


def test_the_same_seed_makes_the_same_errors() -> None:
    text = "how do i hang up when i forgot my pin"
    assert WordErrors(PAIRS, rate=0.5, seed=7).hear(text) == WordErrors(PAIRS, rate=0.5, seed=7).hear(text)


def test_the_rate_is_about_the_share_of_words_that_change() -> None:
    channel = WordErrors(PAIRS, rate=0.2, seed=5)
    words = ["pin"] * 1_000
    heard = channel.hear(" ".join(words)).split()
    assert 140 <= len(words) - heard.count("pin") <= 260
