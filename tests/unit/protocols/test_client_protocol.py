"""Messages as JSON: bounds that are checked before anything is parsed."""

import gc

import pytest

from parley.protocols.client_protocol import (
    LARGE_CHARS,
    MOST_CONTAINERS,
    MOST_REALTIME_VALUES,
    ProtocolError,
    json_object,
    parsed,
)


@pytest.mark.parametrize("piece", ["{}", "[]", '{"a":1}', "[[]]"])
def test_a_message_of_many_small_parts_is_refused_before_it_is_parsed(piece: str):
    # It ends as invalid JSON: parsing would refuse it for that.
    text = '{"type":"x","a":[' + ",".join([piece] * (MOST_CONTAINERS + 1))
    with pytest.raises(ProtocolError) as refused:
        json_object(text)
    assert refused.value.code == "too_large"


def test_a_list_of_very_many_values_is_refused():
    with pytest.raises(ProtocolError, match="values"):
        json_object('{"a":[' + ",".join(["1"] * 300_000) + "]}")


@pytest.mark.parametrize("letter", ["a", "\u00e9"], ids=["ascii", "other"])
@pytest.mark.parametrize("size", [0, LARGE_CHARS], ids=["short", "large"])
def test_a_realtime_message_has_fewer_values_than_a_conversation(size: int, letter: str):
    def message(commas: int) -> str:
        return '{"type":"x","text":"' + letter * size + '","a":[' + ",".join(["1"] * (commas - 1)) + "]}"

    assert len(parsed(message(MOST_REALTIME_VALUES))["a"]) == MOST_REALTIME_VALUES - 1
    # It ends as invalid JSON: parsing would refuse it for that.
    with pytest.raises(ProtocolError) as refused:
        parsed(message(MOST_REALTIME_VALUES + 1)[:-1])
    assert refused.value.code == "too_large"
    assert json_object(message(MOST_REALTIME_VALUES + 1))


def test_a_long_text_or_recording_is_taken():
    audio = "A" * 4_000_000
    assert json_object('{"audio":"' + audio + '"}') == {"audio": audio}
    commas = ", " * 16_000
    assert json_object('{"text":"' + commas + '"}') == {"text": commas}


def nested(levels: int) -> str:
    return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)


def test_a_hundred_levels_are_taken():
    assert json_object(nested(100))


@pytest.mark.parametrize(
    "text", ["[" * 19_000, '{"a":' * 5_000 + "1" + "}" * 5_000, nested(101), "7", "[]", '{"a":NaN}', ""]
)
def test_what_is_no_object_is_refused(text: str):
    with pytest.raises(ProtocolError) as refused:
        json_object(text)
    assert refused.value.code == "invalid_json"


def test_half_a_surrogate_pair_is_taken():
    assert json_object('{"text":"\\ud83d"}') == {"text": "\ud83d"}


@pytest.mark.parametrize("end", ["", "}}"])
def test_a_refusal_does_not_hold_the_message(end: str):
    text = '{"audio":"' + "A" * 100_000 + end
    refused: ProtocolError | None = None
    try:
        json_object(text)
    except ProtocolError as error:
        refused = error.with_traceback(None)
    assert refused is not None
    held: list[object] = [refused]
    for _ in range(3):
        held += gc.get_referents(*held)
    assert not any(each is text for each in held)
