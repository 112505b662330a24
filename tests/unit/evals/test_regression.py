"""Planned calls of a replay's material, and the figures of replayed calls."""

from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.core.media import pcm16_to_float
from parley.evals.human.callers import CallerTurn, SpeechKind
from parley.evals.human.hesitations import ComposedTurn, PlacedPause
from parley.evals.human.recordings import utterance
from parley.evals.regression.__main__ import summarized, table
from parley.evals.regression.recorded_calls import (
    FIRST_HEARD_MS,
    LAST_HEARD_MS,
    Manner,
    PlannedCall,
    plan,
    recording_deployment,
)
from parley.recording.comparison import CallTurn, Difference, TurnPair
from parley.recording.comparison_page import ReplayedCall
from parley.recording.folder import CallRecording
from tests.voices import RATE_HZ, tone


class Source:
    """Caller whose turns are tones of 0.5 s with a pause in the middle.

    Args:
        hz: pitch of the tones.
    """

    def __init__(self, hz: float) -> None:
        self.hz = hz
        self.seeds: list[int] = []

    def turns(self, count: int, seed: int) -> list[CallerTurn]:
        self.seeds.append(seed)
        samples = pcm16_to_float(tone(500, self.hz))
        one = utterance(
            f"tone/{self.hz}", samples, RATE_HZ, text="a", speaker="s", source="tone", language="en"
        )
        pause = PlacedPause(RATE_HZ // 5, RATE_HZ * 3 // 10, None, None)
        turn = ComposedTurn(one, samples, RATE_HZ, (pause,))
        return [CallerTurn(turn, SpeechKind.SYNTHETIC)] * count


def manners(calls: list[PlannedCall]) -> list[Manner]:
    return [turn.manner for call in calls for turn in call.turns]


def test_callers_wait_interrupt_and_murmur_and_hear_the_last_answer(tmp_path: Path):
    low, high = Source(300), Source(500)
    calls = plan([low, high], 30, 4, 7, tmp_path)
    assert [len(call.turns) for call in calls] == [4] * 30
    assert (low.seeds, high.seeds) == (list(range(7, 37, 2)), list(range(8, 37, 2)))
    assert all(call.turns[-1].manner is Manner.LISTENS for call in calls)
    drawn = [turn for call in calls for turn in call.turns[:-1]]
    shares = {manner: [turn.manner for turn in drawn].count(manner) / len(drawn) for manner in Manner}
    assert shares[Manner.INTERRUPTS] == pytest.approx(0.4, abs=0.15)
    assert shares[Manner.MURMURS] == pytest.approx(0.2, abs=0.12)
    for turn in drawn:
        assert (turn.murmur is not None) == (turn.manner is Manner.MURMURS)
        if turn.manner is not Manner.LISTENS:
            assert FIRST_HEARD_MS <= turn.heard_ms < LAST_HEARD_MS
    assert sum(call.barge_ins + call.murmurs for call in calls) == len(
        [turn for turn in drawn if turn.manner is not Manner.LISTENS]
    )
    assert sum(call.hesitations for call in calls) == 120


def test_the_same_seed_gives_the_same_calls(tmp_path: Path):
    first, again, other = (plan([Source(300)], 10, 3, seed, tmp_path) for seed in (1, 1, 2))
    assert manners(first) == manners(again) != manners(other)


def test_the_deployment_records_into_its_folder_and_admits_all_callers(tmp_path: Path):
    deployment = load_deployment(str(recording_deployment(tmp_path, None)))
    assert deployment.recording.enabled and deployment.recording.folder == tmp_path
    assert deployment.hearing.stt.name == "moonshine_tiny"
    assert deployment.server.admission == "off"


def replayed(
    *differences: tuple[Difference, ...], failure: str = "", cost: float | None = None
) -> ReplayedCall:
    turn = CallTurn(1_000, "a", waited_ms=400, heard="b", latency_ms=600, cost=cost)
    recording = CallRecording(Path("/nowhere"), "s", "c", {}, None)
    pairs = tuple(TurnPair(turn, turn, each) for each in differences)
    return ReplayedCall(recording, None, pairs, failure=failure, currency="USD")


def test_figures_count_calls_and_turns():
    calls = [replayed((), (Difference.WORDS,)), replayed((Difference.ANSWER,)), replayed(failure="no side")]
    result = summarized(calls)
    assert (result["calls"], result["changed_calls"], result["failed_calls"]) == (3, 2, 1)
    assert (result["turns"], result["changed_turns"], result["other_words"]) == (3, 1, 1)
    assert result["alike_percent"] == 33.3
    assert "| calls with the same decisions (%) | 33.3 |" in table(result)
    assert "| cost of the turns then, now | no prices |" in table(result)


def test_the_table_sums_what_the_turns_cost():
    result = summarized([replayed((), (), cost=0.25), replayed((), cost=0.125)])
    assert result["cost"] == {"then": 0.625, "now": 0.625, "currency": "USD"}
    assert "| cost of the turns then, now | 0.625 -> 0.625 USD |" in table(result)
