"""Effects of a call on its session and the reverse, on virtual time."""

import asyncio
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from pipecat.frames.frames import CancelFrame, EndFrame, Frame

from parley.core.call_events import AnnotationReported
from parley.core.timeline import Annotation, ProsodyPayload, Source, VisionPayload
from parley.session_store.events import Event, Kind
from parley.session_store.replay import recorded_calls, replay
from tests.sim.call import OFF, RunningCall, silence, simulate, voice

QUESTION = [silence(500), voice(1_000), silence(1_500)]
# Text of the fake recogniser for a second of voice.
SAID = "what is it what is"


def of_kind(events: list[Event], kind: Kind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def test_the_turn_is_durable_before_the_model_is_asked_and_the_reply_when_it_was_heard(tmp_path: Path):
    call = simulate([*QUESTION, silence(3_000)], tmp_path)
    [turn], [reply] = of_kind(call.events, Kind.USER_TURN), of_kind(call.events, Kind.BOT_TURN)
    assert turn.payload["text"] == SAID
    assert turn.seq < reply.seq
    assert (reply.payload["text"], reply.payload["truncated"]) == ("The answer is yes. That is all.", False)
    # Twelve clauses would be twelve checkpoints; this reply has two.
    checkpoints = [event.payload["text"] for event in of_kind(call.events, Kind.HEARD)]
    assert checkpoints[:1] == ["The answer is yes."]
    start_ms, _ = call.bot_spans_ms()[0]
    assert turn.arrival_us < reply.event_us
    assert [event.kind for event in call.events if event.kind in (Kind.JOINED, Kind.LEFT)] == [
        Kind.JOINED, Kind.LEFT,
    ]  # fmt: skip
    assert start_ms > 1_500


def test_words_of_a_call_replay_in_the_same_order(tmp_path: Path):
    call = simulate([*QUESTION, silence(3_000), voice(1_200), silence(2_000)], tmp_path)
    [recorded] = recorded_calls(call.events)
    assert len(recorded.committed) >= 2
    assert not any(event.payload["late"] for event in of_kind(call.events, Kind.ANNOTATION))
    assert replay(recorded).difference is None


def test_a_caller_of_whom_nothing_came_for_a_time_goes_on_after_it(tmp_path: Path):
    said = [voice(400), voice(400), silence(600)]
    call = simulate(said, tmp_path, talks_over=True, pauses=[(400 * 16, 3_000)])
    hops = np.abs(call.stereo[:, 0]).reshape(-1, 160).max(axis=1) > 0.01
    loud_ms = np.flatnonzero(hops) * 10
    assert not hops[41:339].any()
    assert loud_ms[0] < 20 and loud_ms[-1] == pytest.approx(3_790, abs=30)


def test_the_transport_tells_playout_how_far_away_the_ear_is(tmp_path: Path):
    delays_ms: list[int] = []

    async def look(running: RunningCall) -> None:
        await asyncio.sleep(1.0)
        delays_ms.append(running.call.live.playout.heard_clock.delay_ms)

    simulate([silence(2_000)], tmp_path, concurrently=look)
    # A file is heard as it is played; without a report of the transport it would count as a browser.
    assert delays_ms == [0]


class Away:
    """Lock on the database's file, as another program would hold it."""

    def __init__(self, tmp_path: Path) -> None:
        self._connection = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)

    def begin(self) -> None:
        self._connection.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        self._connection.rollback()
        self._connection.close()


def test_a_database_that_is_away_for_30_s_delays_the_answer_and_the_caller_hears_a_filler(tmp_path: Path):
    asked_at_end: list[int] = []

    async def disturb(running: RunningCall) -> None:
        away = Away(tmp_path)
        await asyncio.sleep(1.0)
        away.begin()
        await asyncio.sleep(30.0)
        asked_at_end.append(len(running.model.asked))
        away.end()

    call = simulate([*QUESTION, silence(36_000)], tmp_path, concurrently=disturb, speculation=OFF)
    # The model was not called before its turn was durable, and then it was.
    assert asked_at_end == [0]
    assert len(call.model.asked) == 1
    [turn], [reply] = of_kind(call.events, Kind.USER_TURN), of_kind(call.events, Kind.BOT_TURN)
    assert reply.payload["text"] == "The answer is yes. That is all."
    spans = call.bot_spans_ms()
    # The caller stops speaking at 1.5 s. One filler at once, more at growing distances, then the answer.
    assert spans[0][0] - 1_500 < 1_300
    assert all(later - earlier <= 9_000 for (_, earlier), (later, _) in zip(spans, spans[1:], strict=False))
    assert 4 <= len(spans) - 1 <= 5
    assert 31_000 < spans[-1][0] < 33_500
    # Events recorded meanwhile are neither lost nor duplicated.
    assert [event.seq for event in call.events] == list(range(1, len(call.events) + 1))
    assert turn.arrival_us < reply.arrival_us
    [recorded] = recorded_calls(call.events)
    assert replay(recorded).difference is None


def test_an_interruption_while_the_database_is_away_loses_no_turn(tmp_path: Path):
    async def disturb(running: RunningCall) -> None:
        away = Away(tmp_path)
        await asyncio.sleep(1.0)
        away.begin()
        await asyncio.sleep(8.0)
        away.end()

    caller = [*QUESTION, silence(1_000), voice(1_000), silence(10_000)]
    call = simulate(caller, tmp_path, concurrently=disturb)
    turns = of_kind(call.events, Kind.USER_TURN)
    assert [turn.payload["text"] for turn in turns] == [SAID, SAID]
    # Both turns are in the one request that the model finally received.
    asked = [message.text for message in call.model.asked[-1] if message.role == "user"]
    assert "\n".join(asked).count(SAID) == 2


@pytest.mark.parametrize("end", [CancelFrame, EndFrame])
def test_a_caller_who_hangs_up_before_the_end_of_the_turn_has_said_it(tmp_path: Path, end: type[Frame]):
    async def hang_up(running: RunningCall) -> None:
        # The words are there, and the turn does not sound complete.
        await asyncio.sleep(2.0)
        await running.call.live.input.queue(end())

    caller = [silence(500), voice(1_000), silence(5_000)]
    call = simulate(caller, tmp_path, completeness=[0.05], concurrently=hang_up, speculation=OFF)
    [turn] = of_kind(call.events, Kind.USER_TURN)
    assert turn.payload["text"] == SAID
    assert call.model.asked == []
    assert call.events[-1].kind is Kind.LEFT


def test_a_session_that_someone_else_claims_ends_the_call_and_nothing_more_is_written(tmp_path: Path):
    seen: list[int] = []

    async def disturb(running: RunningCall) -> None:
        await asyncio.sleep(1.0)
        store = running.conversations.store
        seen.append((await store.info(running.call.conversation.session_id)).last_seq)
        await store.claim(running.call.conversation.session_id)

    call = simulate([*QUESTION, silence(30_000)], tmp_path, concurrently=disturb, speculation=OFF)
    assert call.model.asked == []
    assert call.events[-1].seq == seen[0]
    assert of_kind(call.events, Kind.USER_TURN) == []
    # The call was ended, not left in silence until the caller gives up.
    assert len(call.stereo) / 16_000 < 10


def test_what_specialists_see_and_hear_is_in_the_question(tmp_path: Path):
    async def perceive(running: RunningCall) -> None:
        clock = running.call.conversation.clock
        await asyncio.sleep(1.2)
        now_us = clock.now_us()
        pointing = VisionPayload(now_us - 600_000, now_us + 400_000, ref="the fee", gesture="pointing")
        tense = ProsodyPayload(now_us - 600_000, now_us + 400_000, stress=0.9)
        for source, payload in ((Source.VISION, pointing), (Source.PROSODY, tense)):
            annotation = Annotation(now_us - 200_000, now_us, source, payload)
            running.call.events.publish(AnnotationReported(0, source, annotation))

    call = simulate([*QUESTION, silence(3_000)], tmp_path, concurrently=perceive, speculation=OFF)
    [question] = [message.text for message in call.model.asked[0] if message.role == "user"]
    assert question.splitlines()[-1] == f"{SAID} [tense; pointing at the fee]"
    [turn] = of_kind(call.events, Kind.USER_TURN)
    assert turn.payload["text"] == SAID
    [token] = turn.payload["tokens"]
    assert (token["text"], token["visual"]["ref"], token["prosody"]["stress"]) == (
        SAID,
        "the fee",
        0.9,
    )
    sources = {event.source for event in of_kind(call.events, Kind.ANNOTATION)}
    assert sources == {"stt", "vision", "prosody"}


def test_a_specialist_that_falls_silent_costs_its_tags_and_nothing_else(tmp_path: Path):
    async def perceive(running: RunningCall) -> None:
        clock = running.call.conversation.clock
        await asyncio.sleep(0.2)
        seen = VisionPayload(clock.now_us() - 100_000, clock.now_us(), ref="the fee", gesture="pointing")
        annotation = Annotation(clock.now_us() - 100_000, clock.now_us(), Source.VISION, seen)
        running.call.events.publish(AnnotationReported(0, Source.VISION, annotation))

    plain = simulate([*QUESTION, silence(3_000)], tmp_path / "plain")
    call = simulate([*QUESTION, silence(3_000)], tmp_path / "frozen", concurrently=perceive)
    assert [message.text for message in call.model.asked[0]][-1] == SAID
    # It delays the turn no longer than the other streams may be waited for.
    late_ms = call.bot_spans_ms()[0][0] - plain.bot_spans_ms()[0][0]
    assert 0 <= late_ms <= 200
    assert np.abs(call.stereo[:, 1]).max() > 0.01
