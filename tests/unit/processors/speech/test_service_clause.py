"""End of a clause that a service speaks, which may report an error after it has reported the end."""

import asyncio

from parley.core.errors import EngineError
from parley.models.tts import SpeechPiece
from parley.processors.speech.crossing import Ended
from parley.processors.speech.service_voice import ERROR_S, ServiceClause
from tests import virtual_time

FAILED = EngineError("the voice is gone", engine="vendor")


def heard(*, error_after_s: float | None = None, reads_after_s: float = 0.0) -> tuple[list[object], float]:
    """Return what a reader takes of a clause that was sent at once, and when it has its end."""

    async def scenario() -> tuple[list[object], float]:
        loop = asyncio.get_running_loop()
        clause = ServiceClause("Yes.", "vendor", limit_bytes=100, on_stop=lambda: None)
        clause.put(SpeechPiece(b"1234"))
        clause.complete()
        began_s = loop.time()
        if error_after_s is not None:
            loop.call_later(error_after_s, clause.end, FAILED)
        await asyncio.sleep(reads_after_s)
        taken: list[object] = [await clause.take(5.0)]
        while not isinstance(taken[-1], Ended):
            taken.append(await clause.take(5.0))
        assert clause.is_over and not clause.was_stopped
        return taken, round(loop.time() - began_s, 3)

    return virtual_time.run(scenario())


def test_an_error_that_follows_the_end_is_the_end():
    taken, after_s = heard(error_after_s=ERROR_S / 2)
    assert taken == [SpeechPiece(b"1234"), Ended(FAILED)]
    assert after_s == ERROR_S / 2


def test_without_an_error_the_clause_ends_when_none_is_awaited_any_more():
    assert heard() == ([SpeechPiece(b"1234"), Ended(None)], ERROR_S)


def test_a_reader_that_comes_later_does_not_wait_for_an_error():
    assert heard(reads_after_s=0.5) == ([SpeechPiece(b"1234"), Ended(None)], 0.5)


def test_an_error_that_comes_later_is_none_of_the_clause():
    assert heard(error_after_s=2 * ERROR_S, reads_after_s=0.5)[0][-1] == Ended(None)


def test_a_clause_of_which_nothing_comes_is_late():
    async def scenario() -> object:
        return await ServiceClause("Yes.", "vendor", limit_bytes=100, on_stop=lambda: None).take(5.0)

    late = virtual_time.run(scenario())
    assert isinstance(late, Ended) and isinstance(late.error, TimeoutError)


def test_a_reader_of_a_clause_that_is_stopped_after_all_of_it_was_sent_has_its_end():
    async def scenario() -> object:
        clause = ServiceClause("Yes.", "vendor", limit_bytes=100, on_stop=lambda: None)
        reading = asyncio.create_task(clause.take(5.0))
        await asyncio.sleep(0)
        clause.complete()
        clause.stop()
        await asyncio.sleep(ERROR_S)
        # The reader has the next steps of the loop, in which it may not wait for what does not come.
        for _ in range(100):
            await asyncio.sleep(0)
        assert clause.was_stopped and reading.done()
        return reading.result()

    assert virtual_time.run(scenario()) == Ended(None)
