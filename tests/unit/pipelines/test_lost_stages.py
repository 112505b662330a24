"""Services without a fallback that are given up: by one permanent error, or by turns that fail in a row."""

from parley.core.call_events import CallEvent, EngineFailed, EnginesGivenUp, ResponseText, TurnEnded
from parley.core.usage import Stage
from parley.pipelines.stages.lost_stages import LostStages
from parley.runtime.event_stream import CallEvents
from parley.session_store.prompt import BY_DEPLOYMENT

FAILED = EngineFailed(1, Stage.LLM)
TURN = TurnEnded(0, "what is it")


def given_up(*happened: CallEvent) -> list[Stage | None]:
    events, found = CallEvents(), list[EnginesGivenUp]()
    events.subscribe(EnginesGivenUp, found.append)
    LostStages(events)
    for event in happened:
        events.publish(event)
    return [each.stage for each in found]


def test_a_service_whose_error_will_recur_is_given_up_once():
    refused = EngineFailed(1, Stage.STT, is_permanent=True)
    assert given_up(refused, refused) == [Stage.STT]


def test_errors_of_other_parts_and_single_errors_give_up_nothing():
    assert given_up(EngineFailed(1, None, is_permanent=True), EngineFailed(1, Stage.TTS), FAILED) == []


def test_several_errors_in_one_turn_are_one_failed_turn():
    assert given_up(TURN, FAILED, FAILED, FAILED, TURN, FAILED, TURN) == []
    assert given_up(TURN, FAILED, TURN, FAILED, TURN, FAILED) == [Stage.LLM]


def test_an_answer_counts_and_an_apology_does_not():
    assert given_up(TURN, FAILED, TURN, FAILED, ResponseText(2, "Ten."), TURN, FAILED) == []
    sorry = ResponseText(2, "I cannot.", BY_DEPLOYMENT)
    assert given_up(TURN, FAILED, sorry, TURN, FAILED, sorry, TURN, FAILED) == [Stage.LLM]
