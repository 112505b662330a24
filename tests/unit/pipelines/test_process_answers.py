"""Answers of all calls of a process: those that it gives itself."""

import pytest

from parley.core.call_events import AnswerHeard, EngineFailedOver
from parley.core.failover import FailoverReason
from parley.pipelines.process_answers import ProcessAnswers
from parley.runtime.event_stream import CallEvents
from parley.telemetry.engine_names import REALTIME_SECTION
from tests import virtual_time


@pytest.mark.parametrize(("is_service", "counted"), [(False, [1, 2, 3]), (True, [3])])
def test_a_realtime_services_answers_count_from_its_failure_on(is_service: bool, counted: list[int]):
    async def scenario() -> list[int]:
        events, answers, heard = CallEvents(), CallEvents(), list[AnswerHeard]()
        answers.subscribe(AnswerHeard, heard.append)
        ProcessAnswers(events, answers, is_service=is_service)
        events.publish(AnswerHeard(0, 1))
        # A voice that stands in for another is no end of the service.
        events.publish(EngineFailedOver(0, "speaking", "hibari", "flite", FailoverReason.ERROR))
        events.publish(AnswerHeard(0, 2))
        events.publish(EngineFailedOver(0, REALTIME_SECTION, "openai", "cascade", FailoverReason.ERROR))
        events.publish(AnswerHeard(0, 3))
        return [each.latency_ms for each in heard]

    assert virtual_time.run(scenario()) == counted
