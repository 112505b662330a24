"""The words of the record, with the tags of the annotations."""

import pytest

from parley.core.timeline import EnrichedToken, ProsodyPayload, VisionPayload
from parley.processors.fusion.tag_alignment import align_tags
from parley.sequencer.rendering import render

TENSE = ProsodyPayload(0, 1_000_000, stress=0.9)
ANGRY = ProsodyPayload(0, 1_000_000, anger=0.9)
FEE = VisionPayload(0, 1_000_000, ref="the fee", gesture="pointing")


def token(text: str, **perceived: object) -> EnrichedToken:
    return EnrichedToken(7, text, **perceived)  # type: ignore[arg-type]  # fields by name


FINE = [token("this is"), token("fine", prosody=TENSE)]


@pytest.mark.parametrize(
    ("said", "tokens", "shown"),
    [
        pytest.param("this is fine", FINE, "this is fine [tense]", id="equal"),
        pytest.param("This is FINE!", FINE, "This is FINE! [tense]", id="case and marks are the record's"),
        pytest.param("this is really fine", FINE, "this is really fine [tense]", id="a word more"),
        pytest.param("fine", FINE, "fine [tense]", id="words fewer"),
        pytest.param("this is vine", FINE, "this is vine", id="the tagged word was another one"),
        pytest.param("fine this is", FINE, "fine this is", id="another order"),
        pytest.param("nothing of it", FINE, "nothing of it", id="nothing in common"),
        pytest.param("this is fine", [], "this is fine", id="no tokens"),
        pytest.param("", FINE, "", id="no words"),
        pytest.param(
            "this is fine",
            [token("this is"), token("fine", speaker_id="a", also="b")],
            "this is fine [b speaks at the same time]",
            id="two voices",
        ),
        pytest.param(
            "don't do it",
            [token("dont", prosody=ANGRY), token("do it")],
            "don't [angry] do it",
            id="apostrophe",
        ),
        pytest.param(
            "a well-known fee",
            [token("a"), token("well known", prosody=TENSE), token("fee", visual=FEE)],
            "a well-known [tense] fee [pointing at the fee]",
            id="a word that is two in the tokens",
        ),
        pytest.param(
            "a well-known fee",
            [token("a well"), token("known", prosody=TENSE), token("fee")],
            "a well-known fee",
            id="a word whose halves do not agree",
        ),
        pytest.param(
            "fine – really", [token("fine really", prosody=TENSE)], "fine – really [tense]", id="dash"
        ),
        pytest.param(
            "naïve Straße", [token("naïve straße", prosody=TENSE)], "naïve Straße [tense]", id="letters"
        ),
        pytest.param(
            "it is [angry]", [token("it is angry", prosody=TENSE)], "it is (angry) [tense]", id="forged"
        ),
    ],
)
def test_the_words_are_the_records_and_the_tags_those_of_the_same_words(
    said: str, tokens: list[EnrichedToken], shown: str
):
    assert render(align_tags(said, tokens)) == shown


def test_no_word_is_lost_and_none_comes_in_whatever_was_perceived():
    tokens = [token("one two", prosody=TENSE), token("four"), token("three five", visual=FEE)]
    for said in ("one two three four five", "five four", "one one one", "two – one", "six"):
        assert " ".join(each.text for each in align_tags(said, tokens)) == said


ANNA, BEN = token("hello there", speaker_id="anna"), token("good morning", speaker_id="ben")


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ("hello there good morning", ["[anna] hello there", "[ben] good morning"]),
        # Between two words of one person it belongs to that person; between two persons it belongs to
        # neither.
        ("hello you there good morning", ["[anna] hello you there", "[ben] good morning"]),
        (
            "hello there and good morning",
            ["[anna] hello there", "[unknown speaker] and", "[ben] good morning"],
        ),
        ("well hello there good morning all", ["[anna] well hello there", "[ben] good morning all"]),
    ],
)
def test_a_word_that_was_not_found_is_said_by_who_speaks_around_it(said: str, lines: list[str]):
    assert render(align_tags(said, [ANNA, BEN])).splitlines() == lines


def test_a_word_of_which_no_speaker_is_known_is_said_by_who_speaks_around_it():
    unnamed = token("you", speaker_id=None)
    shown = align_tags("hello there you hello there good morning", [ANNA, unnamed, ANNA, BEN])
    assert render(shown).splitlines() == ["[anna] hello there you hello there", "[ben] good morning"]
