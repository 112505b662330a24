"""Judgement of what other projects' programs have seen, and of the words of a turn."""

import copy
from typing import Any

import pytest

from parley.evals.foreign.model_peer import LONG, PRICE, SHORT, decide
from parley.evals.foreign.programs import PROGRAMS
from parley.evals.foreign.transcripts import missing_words
from parley.evals.harness.socket_caller import QUESTIONS, ItemPlayer

QUESTION = "What are your opening hours?"
AGENTS: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "interrupted": 1,
    "audio_bytes": 200_000,
    "history": [
        ["user", ["what art your opening hours"]],
        ["assistant", ["They say"]],
        ["user", ["stop"]],
        ["assistant", [PRICE]],
    ],
}
LIVEKIT: dict[str, Any] = {
    "errors": [],
    "called": ["Paris"],
    "heard": ["what are your opening hours", "stop please"],
    "steps": {
        "instructed": {"words": [LONG], "error": ""},
        "typed": {"words": [PRICE], "error": ""},
        "after_barge_in": {"words": [PRICE], "error": ""},
    },
    "said": [
        ["user", "what are your opening hours", False],
        ["assistant", "They say: sunny in Paris. We", True],
        ["user", "stop please", False],
        ["assistant", PRICE, False],
    ],
}


@pytest.mark.parametrize(
    ("transcripts", "missing"),
    [
        (["what are your opening hours"], []),
        # Taken for another word, and for two.
        (["What art your opening hours?"], []),
        (["what are your open in hours"], []),
        (["what your opening hours"], ["are"]),
        (["opening hours"], ["what", "are", "your"]),
        ([], ["what", "are", "your", "opening", "hours"]),
        (["what are your", "opening hours"], ["what", "are", "your", "opening", "hours"]),
    ],
)
def test_a_word_without_anything_in_its_place_is_missing(transcripts: list[str], missing: list[str]):
    assert missing_words(QUESTION, transcripts) == missing


@pytest.mark.parametrize(("name", "seen"), [("agents", AGENTS), ("livekit", LIVEKIT)])
def test_a_conversation_as_it_should_be_has_no_faults(name: str, seen: dict[str, Any]):
    assert PROGRAMS[name].faults(seen) == []


@pytest.mark.parametrize(
    ("name", "changed", "fault"),
    [
        ("agents", {"errors": ["gone"]}, "error: gone"),
        ("agents", {"called": []}, "the tool was called with []"),
        ("agents", {"interrupted": 0}, "not interrupted"),
        ("agents", {"history": AGENTS["history"][:3]}, "the history is"),
        ("agents", {"history": [["user", ["opening"]], *AGENTS["history"][1:]]}, "was heard as"),
        ("agents", {"audio_bytes": 10}, "only 10 bytes"),
        ("livekit", {"errors": ["gone"]}, "error: gone"),
        ("livekit", {"called": ["Paris", "Paris"]}, "the tool was called"),
        ("livekit", {"heard": ["stop please"]}, "heard: "),
        ("livekit", {"steps": {"typed": LIVEKIT["steps"]["typed"]}}, "instructed: [] it was not reached"),
        ("livekit", {"said": LIVEKIT["said"][:1]}, "reported 0 times"),
        ("livekit", {"said": LIVEKIT["said"][:3]}, "after the interruption"),
        (
            "livekit",
            {"said": [["assistant", "sunny in Paris", False], *LIVEKIT["said"][2:]]},
            "not marked as interrupted",
        ),
    ],
)
def test_each_fault_is_named(name: str, changed: dict[str, Any], fault: str):
    seen = copy.deepcopy(AGENTS if name == "agents" else LIVEKIT) | changed
    faults = PROGRAMS[name].faults(seen)
    assert any(fault in each for each in faults), faults


def test_the_largest_gap_is_inside_of_an_item():
    player = ItemPlayer()
    # The second piece comes 0.25 s late, and the third in time for a player that is late by then.
    for at_s in (1.0, 1.75, 2.2):
        player.take("a", at_s, 0.5)
    assert player.largest_gap_s == pytest.approx(0.25)
    # The next answer begins long after the first one, which is no gap.
    for at_s in (9.0, 9.1, 10.0):
        player.take("b", at_s, 0.5)
    assert player.largest_gap_s == pytest.approx(0.25)


def test_the_model_calls_the_tool_once_and_answers_each_caller():
    asked = {"role": "user", "content": [{"type": "text", "text": "what are your opening hours"}]}
    assert decide([asked], has_tools=True) == (True, "")
    assert decide([asked], has_tools=False) == (False, LONG)
    calls, said = decide([asked, {"role": "tool", "content": "sunny in Paris"}], has_tools=True)
    assert not calls and said.startswith("They say: sunny in Paris.")
    assert {decide([{"role": "user", "content": each}], has_tools=False) for each in QUESTIONS} == {
        (False, SHORT)
    }
