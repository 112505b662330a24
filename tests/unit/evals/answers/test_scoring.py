import pytest

from parley.evals.answers.scoring import Golden, Kind, Statements, holds, judge

STATEMENTS = Statements(["The warranty does not cover damage by frost or lightning."])


def golden(kind: Kind, **facts: tuple[str, ...]) -> Golden:
    return Golden("pump", kind, ("x",), **facts)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("Open from nine until five.", "9 until 5"),
        ("It costs 2,500 dollars.", "two thousand five hundred dollars"),
        ("Outdoor use: no.", "outdoor use no"),
        ("It weighs 4.9 kg", "5 kilos|4.9 kg"),
    ],
)
def test_a_fact_is_found_however_it_is_written(text: str, fact: str) -> None:
    assert holds(text, fact)


@pytest.mark.parametrize(("text", "fact"), [("It costs 250 dollars.", "25 dollars"), ("Nobody knows.", "no")])
def test_a_part_of_a_word_is_no_fact(text: str, fact: str) -> None:
    assert not holds(text, fact)


def test_all_facts_have_to_be_there_and_no_wrong_one() -> None:
    asked = golden(Kind.FACT, facts=("two", "three"), wrong=("four",))
    assert judge(asked, "Two or three.", STATEMENTS).is_right
    assert not judge(asked, "Two.", STATEMENTS).is_right
    assert not judge(asked, "Two, three or four.", STATEMENTS).is_right


def test_the_opposite_is_counted() -> None:
    verdict = judge(
        golden(Kind.NEGATION, facts=("frost",), reversed=("covers frost",)), "It covers frost.", STATEMENTS
    )
    assert verdict.is_reversed and not verdict.is_right


def test_a_long_answer_is_wrong() -> None:
    assert not judge(golden(Kind.FACT, facts=("two",)), "two " * 70, STATEMENTS).is_right


@pytest.mark.parametrize("kind", [Kind.NOISE, Kind.LANGUAGE])
def test_a_statement_in_answer_to_noise_is_counted(kind: Kind) -> None:
    fact = "The warranty does not cover damage by frost."
    assert judge(golden(kind), fact, STATEMENTS).is_fact_for_noise
    assert not judge(golden(kind), "I did not catch that.", STATEMENTS).is_fact_for_noise
    assert not judge(golden(Kind.UNKNOWN, facts=("know",)), f"I don't know. {fact}", STATEMENTS).is_right
