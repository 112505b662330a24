"""Dataclasses as fields of messages: decoded unchanged, or refused."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import pytest

from parley.core.errors import PeerError
from parley.protocols.facts import from_facts, to_facts


class Mood(StrEnum):
    CALM = "calm"


@dataclass(frozen=True)
class Word:
    text: str
    at_ms: int


@dataclass(frozen=True)
class Heard:
    word: Word
    mood: Mood
    kind: Literal["final", "partial"]
    share: float
    words: tuple[Word, ...]
    sizes: tuple[tuple[int, int], ...]
    more: dict[str, Any]
    note: str | None
    pcm: bytes


HEARD = Heard(Word("a", 1), Mood.CALM, "final", 0.5, (Word("b", 2),), ((3, 4),), {"x": 1}, None, b"\0")
FACTS = to_facts(HEARD, without=("pcm",))


def test_a_dataclass_arrives_as_it_was() -> None:
    assert FACTS["words"] == [["b", 2]] and FACTS["word"] == {"text": "a", "at_ms": 1}
    assert from_facts(Heard, json.loads(json.dumps(FACTS)), pcm=b"\0") == HEARD
    of_numpy = replace(HEARD, word=Word("a", np.int64(1)), share=np.float32(0.5))  # type: ignore[arg-type]
    assert json.loads(json.dumps(to_facts(of_numpy, without=("pcm",)))) == FACTS


@pytest.mark.parametrize(
    "change",
    [
        {"word": None},
        {"word": {"text": "a"}},
        {"mood": "glad"},
        {"kind": ["final"]},
        {"share": float("inf")},
        {"share": 10**400},
        {"share": True},
        {"words": [["b"]]},
        {"words": "b"},
        {"words": [["b", -1]]},
        {"sizes": [[3]]},
        {"sizes": [3]},
        {"sizes": {}},
        {"more": []},
        {"note": 5},
    ],
    ids=str,
)
def test_facts_of_other_types_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(PeerError):
        from_facts(Heard, FACTS | change, pcm=b"")


def test_what_is_no_facts_is_refused() -> None:
    for facts in (None, [], {}):
        with pytest.raises(PeerError):
            from_facts(Word, facts)
