"""Queue of phone callers, who count as present as long as Twilio's requests come."""

import itertools

from parley.serving.gateway.phone.queue import PhoneQueue, PhoneQueueSettings
from parley.serving.scheduler.call_queue import CallQueue, CallQueueSettings


def test_a_caller_keeps_their_place_however_long_it_takes_to_join():
    moments = itertools.count()

    def clock_s() -> float:
        """Return a time that advances with each reading."""
        return next(moments) * 0.01

    queue = PhoneQueue(PhoneQueueSettings(), CallQueue(CallQueueSettings(), clock_s), clock_s)
    first = queue.wait("CA1", uses_recogniser=True)
    second = queue.wait("CA2", uses_recogniser=True)
    assert first is not None and "number 1 " in first
    assert second is not None and "number 2 " in second
