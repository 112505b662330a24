from parley.core.timeline import EnrichedToken, SpokenWord, VisionPayload
from parley.language import find_language
from parley.language.perceived import NoPerceived
from parley.processors.fusion.pointing import pointed_us

RULES = find_language("en").perceived


def spoken(text: str) -> list[SpokenWord]:
    """Return words of 200 us each."""
    return [SpokenWord(word, n * 200, (n + 1) * 200) for n, word in enumerate(text.split())]


def moment(text: str) -> int | None:
    return pointed_us(spoken(text), (), RULES)


def test_the_moment_is_that_of_the_last_words_that_point():
    assert moment("what is this?") in range(400, 600)
    assert moment("is this one cheaper than that one") in range(1_000, 1_400)
    assert moment("what does the card say") is None
    assert moment("") is None


def test_words_without_times_have_the_moment_of_their_share_of_the_text():
    whole = [SpokenWord("what is this and how much does it cost me", 1_000, 5_100)]
    assert pointed_us(whole, (), RULES) == 2_000
    assert pointed_us([SpokenWord("what is this", 7_000, 7_000)], (), RULES) == 7_000


def test_a_gesture_without_words_that_point_has_its_own_moment():
    seen = VisionPayload(300, 900, ref="the card", gesture="holding")
    face = EnrichedToken(0, "what does", visual=VisionPayload(0, 100, facial_affect="smiling"))
    words = spoken("what does it cost")
    assert pointed_us(words, [face, EnrichedToken(200, "it cost", visual=seen)], RULES) == 300
    assert pointed_us(words, [face], RULES) is None


def test_a_language_without_rules_has_the_gesture_alone():
    assert pointed_us(spoken("what is this"), (), NoPerceived()) is None
