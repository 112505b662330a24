"""The count of spoken requests that the language rules recognise."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from parley.evals.answers.requests import (
    DIGITS,
    RULES,
    Heard,
    Turn,
    accepted_others,
    figures,
    golden,
    is_recognised,
    main,
)

TURNS, OTHERS = golden()
# They begin as an answer to an offer does, and are judged so only while one is open.
ANSWERS = {
    "OK, and the price?",
    "All right cards are blue.",
    "I do not want to wait for the card.",
    "Never mind the price, how fast is it?",
}


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.text)
def test_each_request_is_recognised_as_it_is_written(turn: Turn) -> None:
    assert is_recognised(turn, turn.text)


def test_no_other_sentence_is_taken_for_a_request() -> None:
    assert {text for _, text in accepted_others()} == ANSWERS
    assert {kind for kind, _ in accepted_others()} == {"yes", "no", "withdraw"}


def test_the_halves_share_no_turn_and_have_the_same_kinds() -> None:
    texts = {half: {turn.text for turn in TURNS if turn.half == half} for half in ("tuning", "report")}
    assert texts["tuning"].isdisjoint(texts["report"])
    for half in texts:
        assert {turn.kind for turn in TURNS if turn.half == half} == {*RULES, DIGITS}


@pytest.mark.parametrize(
    ("kind", "heard", "digits"),
    [
        ("farewell", "no that's all thank you by", ""),
        ("farewell", "sand you very much by by", ""),
        ("human", "is there some one i can't talk to", ""),
        ("human", "put me through to customers service", ""),
        ("moment", "ok hang on the second", ""),
        ("more", "is there any thing else", ""),
        ("thanks", "thanx", ""),
        ("backchannel", "make sense", ""),
        ("text", "less switch to chat", ""),
        ("screen", "can i show you my scream", ""),
        (DIGITS, "two for six eight", "2468"),
        (DIGITS, "one to three four", "1234"),
    ],
)
def test_transcripts_of_requests_are_recognised(kind: str, heard: str, digits: str) -> None:
    assert is_recognised(Turn("tuning", kind, heard, digits), heard)


@pytest.mark.parametrize(
    ("kind", "heard"),
    [
        ("yes", "you have"),
        ("no", "note"),
        ("stop", "please start talking"),
        ("farewell", "and the call"),
        ("farewell", "thanks bite"),
        ("withdraw", "i won't go on with you"),
        ("hide", "turned the camera in love"),
    ],
)
def test_a_transcript_that_says_something_else_is_left(kind: str, heard: str) -> None:
    assert not is_recognised(Turn("tuning", kind, heard), heard)


def test_kept_transcripts_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = [
        Heard("Goodbye.", "one/voice", "clean", 0, "goodbye", 600),
        Heard("Goodbye.", "one/voice", "phone", 0, "good by", 600),
        Heard("Two four six eight.", "one/voice", "phone", 0, "to for", 900),
        Heard("No such turn.", "one/voice", "phone", 0, "goodbye", 600),
    ]
    rows = {(row["of"], row["line"]): (row["recognised"], row["said"]) for row in figures(heard)["rows"]}
    assert rows["farewell", "clean"] == rows["farewell", "phone"] == (1, 1)
    assert rows["one/voice", "phone"] == rows["all", "phone"] == (1, 2)
    assert rows[DIGITS, "phone"] == (0, 1)
    kept, table = tmp_path / "kept.jsonl", tmp_path / "table.md"
    kept.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in heard), encoding="utf-8")
    assert main(["--set", "tuning", "--heard", str(kept), "--table", str(table)]) == 0
    out = capsys.readouterr().out
    assert out == table.read_text(encoding="utf-8")
    assert "| tuning | all | 1 of 1 (100 %) | 1 of 2 (50 %) |" in out
    assert main(["--heard", str(tmp_path / "missing.jsonl")]) == 2
