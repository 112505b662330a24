import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.timeline import EnrichedToken, ProsodyPayload, VisionPayload
from parley.sequencer.reading import RenderedPart, read_turn, referent_of
from parley.sequencer.rendering import render


def said(text: str, *, who: str | None = None, ref: str | None = None, stress: float | None = None):
    prosody = None if stress is None else ProsodyPayload(0, 1, stress=stress)
    visual = None if ref is None else VisionPayload(0, 1, ref=ref, gesture="pointing")
    return EnrichedToken(0, text, who, prosody, visual)


def test_parts_are_read_back_with_their_labels():
    turn = render([said("cancel this", ref="the lamp"), said("and this is fine", stress=0.9), said("thanks")])
    assert read_turn(turn) == [
        RenderedPart(None, "cancel this", ("pointing at the lamp",)),
        RenderedPart(None, "and this is fine", ("tense",)),
        RenderedPart(None, "thanks"),
    ]


def test_lines_of_several_speakers_are_read_back_with_their_names():
    turn = render([said("cancel it", who="ana"), said("no keep it", who="ben", stress=0.9)])
    assert read_turn(turn) == [
        RenderedPart("ana", "cancel it"),
        RenderedPart("ben", "no keep it", ("tense",)),
    ]


def test_a_typed_turn_of_lines_has_no_speakers():
    assert read_turn("first\nsecond") == [RenderedPart(None, "first\nsecond")]


@pytest.mark.parametrize(
    ("label", "ref"),
    [
        ("pointing at the fee", "the fee"),
        ("holding the card", "the card"),
        ("showing a letter", "a letter"),
        ("circling the total", "the total"),
        ("pointing", None),
        ("pointing at ", None),
        # Gestures of the camera's specialist refer to nothing that it knows.
        ("pointing towards the camera", None),
        ("pointing away from the camera", None),
        ("pointing to the left of the picture", None),
        ("pointing up", None),
        ("thumbs down", None),
        ("2 fingers held up", None),
        ("open hand held up", None),
        ("looking away", None),
        ("2 people in the picture", None),
        ("tense", None),
        ("seems tense", None),
        ("looks happy", None),
        ("louder than before", None),
        ("in a higher voice", None),
    ],
)
def test_only_labels_of_sight_refer_to_something(label: str, ref: str | None):
    assert referent_of(label) == ref


@given(st.lists(st.tuples(st.text(min_size=1), st.sampled_from([None, "ana", "ben"]), st.booleans())))
def test_no_word_of_a_turn_is_lost(parts: list[tuple[str, str | None, bool]]):
    tokens = [said(text, who=who, ref="the fee" if seen else None) for text, who, seen in parts]
    read = read_turn(render(tokens))
    rendered = " ".join(render([said(text)]) for text, _, _ in parts if text.strip())
    assert "".join("".join(part.words for part in read).split()) == "".join(rendered.split())
