"""The early looks of one call: their requests and times, and a call without them."""

import asyncio
from collections.abc import Callable

from parley.core.errors import EngineError
from parley.models.stt import Transcript
from parley.models.stt.looks import BEFORE_MS, LOOKS_MS
from parley.processors.turns.looks import KEPT_MS, LookStream, VoiceLooks
from parley.processors.turns.reopened_stream import REOPEN_S
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from tests import virtual_time
from tests.fakes.looks import ScriptedLooks
from tests.in_place_engine import InPlaceEngine

ODDS = tuple(float(place) for place in range(len(LOOKS_MS)))
VOICED_MS = 128
ANSWER = EngineMessage(MessageType.DONE, 1, {"log_odds": 0.5})


def accept(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result


def audio(ms: int) -> bytes:
    return bytes(32 * ms)


async def opened(scripted: ScriptedLooks) -> VoiceLooks:
    looks = VoiceLooks(InPlaceEngine(scripted, accept))
    await looks.open()
    return looks


def heard_piece_by_piece(looks: VoiceLooks, ms: int, *, then: Callable[[int], None] | None = None) -> None:
    for at_ms in range(20, ms + 1, 20):
        looks.hear(audio(20))
        if then is not None:
            then(at_ms)


def test_each_look_is_asked_once_with_the_audio_up_to_it():
    async def scenario() -> tuple[ScriptedLooks, list[tuple[int, float]]]:
        scripted, found = ScriptedLooks(ODDS), list[tuple[int, float]]()
        looks = await opened(scripted)
        heard_piece_by_piece(looks, 2_000)
        looks.on_voice_started(VOICED_MS, lambda look, odds: found.append((look, odds)))
        for _ in range(100):
            looks.hear(audio(20))
            await asyncio.sleep(0)
        looks.close()
        return scripted, found

    scripted, found = virtual_time.run(scenario())
    assert found == list(enumerate(ODDS))
    assert scripted.asked == [(look, 32 * (BEFORE_MS + ms)) for look, ms in enumerate(LOOKS_MS)]


def test_no_voice_no_question():
    async def scenario() -> ScriptedLooks:
        scripted = ScriptedLooks(ODDS)
        looks = await opened(scripted)
        heard_piece_by_piece(looks, 3_000)
        looks.close()
        return scripted

    assert virtual_time.run(scenario()).asked == []


def test_a_voice_that_is_decided_is_not_looked_at_any_more():
    async def scenario() -> tuple[ScriptedLooks, list[int]]:
        scripted, found = ScriptedLooks(ODDS), list[int]()
        looks = await opened(scripted)
        heard_piece_by_piece(looks, 1_000)

        def on_look(look: int, odds: float) -> None:
            found.append(look)
            looks.on_voice_over()

        looks.on_voice_started(VOICED_MS, on_look)
        for _ in range(100):
            looks.hear(audio(20))
            await asyncio.sleep(0)
        looks.close()
        return scripted, found

    scripted, found = virtual_time.run(scenario())
    assert found == [0]
    assert [look for look, _ in scripted.asked] == [0]


def test_what_is_kept_between_voices_is_bounded():
    async def scenario() -> int:
        looks = await opened(ScriptedLooks(ODDS))
        heard_piece_by_piece(looks, 60_000)
        kept = len(looks._heard)
        looks.on_voice_started(VOICED_MS, lambda look, odds: None)
        heard_piece_by_piece(looks, 60_000)
        assert len(looks._heard) <= 32 * KEPT_MS
        looks.close()
        return kept

    assert virtual_time.run(scenario()) <= 32 * KEPT_MS


class SlowStream:
    """Stream that answers on request of the test."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[EngineMessage]] = []

    def ask(self, question: EngineMessage) -> "asyncio.Future[EngineMessage]":
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    def close(self) -> None:
        for each in self.asked:
            each.cancel()


class SlowEngine:
    rate_hz = 16_000

    def __init__(self) -> None:
        self.stream = SlowStream()

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> LookStream:
        return self.stream


def test_while_a_question_waits_no_other_is_asked():
    async def scenario() -> tuple[int, list[int]]:
        engine, found = SlowEngine(), list[int]()
        looks = VoiceLooks(engine)
        await looks.open()
        heard_piece_by_piece(looks, 1_000)
        looks.on_voice_started(VOICED_MS, lambda look, odds: found.append(look))
        heard_piece_by_piece(looks, LOOKS_MS[3] - VOICED_MS)
        waiting = len(engine.stream.asked)
        engine.stream.asked[0].set_result(ANSWER)
        await asyncio.sleep(0)
        heard_piece_by_piece(looks, 1_000)
        await asyncio.sleep(0)
        looks.close()
        return waiting, found

    waiting, found = virtual_time.run(scenario())
    assert waiting == 1
    assert found == [0]


def test_an_answer_about_the_voice_before_is_not_reported_for_the_next():
    async def scenario() -> list[str]:
        engine, found = SlowEngine(), list[str]()
        looks = VoiceLooks(engine)
        await looks.open()
        heard_piece_by_piece(looks, 1_000)
        looks.on_voice_started(VOICED_MS, lambda look, odds: found.append("first"))
        heard_piece_by_piece(looks, LOOKS_MS[0] - VOICED_MS + 20)
        looks.on_voice_over()
        heard_piece_by_piece(looks, 400)
        looks.on_voice_started(VOICED_MS, lambda look, odds: found.append("second"))
        engine.stream.asked[0].set_result(ANSWER)
        await asyncio.sleep(0)
        looks.close()
        return found

    assert virtual_time.run(scenario()) == []


def test_a_recogniser_that_fails_is_opened_again_and_looked_with():
    async def scenario() -> list[int]:
        scripted, found = ScriptedLooks(ODDS, fail_after=1), list[int]()
        looks = await opened(scripted)
        for _ in range(2):
            heard_piece_by_piece(looks, 1_000)
            looks.on_voice_started(VOICED_MS, lambda look, odds: found.append(look))
            for _ in range(30):
                looks.hear(audio(20))
                await asyncio.sleep(0)
            looks.on_voice_over()
            await asyncio.sleep(REOPEN_S)
        looks.close()
        return found

    assert virtual_time.run(scenario()) == [0, *range(len(LOOKS_MS))]
