"""Records of a call in a real session store: who said a reply that no model wrote."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from parley.core.call_events import (
    CallAnswered,
    CallBegan,
    CallEnded,
    CallEnding,
    CameraChanged,
    EngineFailedOver,
    FallbackAnswers,
    OperatorListened,
    PhraseChosen,
    ReplyCorrected,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyWritten,
    TextGiven,
)
from parley.core.failover import FailoverReason
from parley.core.pictures import CAMERA, SCREEN
from parley.core.timeline import HeardMark, HeardReply, HeardSoFar, HeardSource
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.call_records import CallRecords
from parley.runtime.event_stream import CallEvents
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time

WORDS = "Good morning. I am Ada from the bank."


def events_of(folder: Path, happen: Callable[[CallEvents], None]) -> list[Event]:
    """Return the records of what happens in a call."""

    async def whole() -> list[Event]:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        try:
            async with opened.open() as conversation:
                call = Call(conversation, "webrtc", LiveCall(conversation.clock), call_id="call")
                CallRecords(call)
                happen(call.events)
                call.events.publish(CallEnded(0))
                await conversation.flushed()
            return await store.events(conversation.session_id, limit=100)
        finally:
            await opened.close()
            await store.close()

    return virtual_time.run(whole())


def recorded(folder: Path, happen: Callable[[CallEvents], None]) -> list[tuple[str, str, Any]]:
    """Return kind, text and author of the records of replies."""
    return [
        (each.kind.value, each.payload["text"], each.payload.get("by"))
        for each in events_of(folder, happen)
        if each.kind in (Kind.HEARD, Kind.BOT_TURN)
    ]


def test_the_record_of_an_end_has_the_servers_first_reason_and_who_had_answered(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        for reason in ("tenant_limit", "server_shutdown"):
            events.publish(CallEnding(events.now_ms(), reason, "a sentence"))
        events.publish(CallAnswered(events.now_ms(), "person"))

    *_, left = events_of(tmp_path, happen)
    assert left.kind is Kind.LEFT
    assert (left.payload["reason"], left.payload["answered_by"]) == ("tenant_limit", "person")


def test_an_engine_that_takes_over_is_recorded_with_the_reason(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        events.publish(EngineFailedOver(0, "speaking", "cartesia", "flite", FailoverReason.STALLED))

    [record] = [each for each in events_of(tmp_path, happen) if each.kind is Kind.FAILOVER]
    assert record.source == "system"
    assert {name: value for name, value in record.payload.items() if name != "v"} == {
        "stage": "speaking",
        "engine": "cartesia",
        "successor": "flite",
        "reason": "stalled",
        "call_id": "call",
    }


def test_the_fallback_of_the_language_model_is_recorded_with_the_reason(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        events.publish(FallbackAnswers(0, "timeout", "anthropic", "documents"))

    [record] = [each for each in events_of(tmp_path, happen) if each.kind is Kind.FAILOVER]
    payload = record.payload
    assert (payload["stage"], payload["engine"], payload["successor"], payload["reason"]) == (
        *("thinking", "anthropic", "documents", "timeout"),
    )


def mark_of(reply_id: str) -> HeardMark:
    return HeardMark(reply_id, 500, 1, HeardSource.PLAYOUT_CLOCK)


def hear(events: CallEvents, reply_id: str, text: str) -> None:
    events.publish(ReplyProgressed(0, HeardSoFar(reply_id, text, mark_of(reply_id), 0, True)))


def end(events: CallEvents, reply_id: str, text: str, unheard: str = "") -> None:
    reply = HeardReply(reply_id, text, unheard, bool(unheard), mark_of(reply_id), True, 0, 1)
    events.publish(ReplyFinished(0, reply))


def test_the_rest_of_a_humans_words_stays_theirs_however_often_it_is_cut(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        events.publish(TextGiven(0, WORDS, True))
        hear(events, "a", "Good morning.")
        end(events, "a", "Good morning.", "I am Ada from the bank.")
        hear(events, "b", "I am Ada")
        end(events, "b", "I am Ada", "from the bank.")
        end(events, "c", "from the bank.")

    assert recorded(tmp_path, happen) == [
        ("heard", "Good morning.", "human"),
        ("bot_turn", "Good morning.", "human"),
        ("heard", "I am Ada", "human"),
        ("bot_turn", "I am Ada", "human"),
        ("bot_turn", "from the bank.", "human"),
    ]


def test_a_reply_of_the_model_that_begins_alike_is_the_models(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        events.publish(TextGiven(0, WORDS, True))
        events.publish(PhraseChosen(0, "A colleague comes."))
        events.publish(ReplyOpened(0, "m"))
        hear(events, "m", "Good morning.")
        end(events, "m", "Good morning.", "We open at ten.")
        end(events, "rest", "We open at ten.")
        end(events, "p", "A colleague comes.")

    assert recorded(tmp_path, happen) == [
        ("heard", "Good morning.", None),
        ("bot_turn", "Good morning.", None),
        ("bot_turn", "We open at ten.", None),
        ("bot_turn", "A colleague comes.", "deployment"),
    ]


def test_a_reply_of_the_model_in_the_words_of_a_human_is_the_models(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        events.publish(TextGiven(0, WORDS, True))
        end(events, "a", WORDS)
        events.publish(ReplyOpened(0, "b"))
        events.publish(ReplyWritten(0, "b"))
        end(events, "b", WORDS)

    assert recorded(tmp_path, happen) == [("bot_turn", WORDS, "human"), ("bot_turn", WORDS, None)]


def test_a_client_may_claim_a_length_again_that_it_has_corrected(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        end(events, "a", "one two three")
        for heard_ms, heard, rest in (
            (100, "one", "two three"),
            (200, "one two", "three"),
            (100, "one", "two three"),
        ):
            mark = replace(mark_of("a"), audio_ms=heard_ms)
            events.publish(ReplyCorrected(0, HeardReply("a", heard, rest, True, mark, True, 0, 1)))

    replies = [each for each in current_events(events_of(tmp_path, happen)) if each.kind is Kind.BOT_TURN]
    assert [each.payload["text"] for each in replies] == ["one"]


def test_the_rest_of_a_reply_is_recorded_with_what_was_heard_once_it_is_written(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        def progress(text: str, rest: str) -> None:
            heard = HeardSoFar("m", text, mark_of("m"), 0, True, rest)
            events.publish(ReplyProgressed(0, heard))

        events.publish(ReplyOpened(0, "m"))
        progress("We open at nine.", "Every")
        events.publish(ReplyWritten(0, "m"))
        progress("We open at nine. Every day.", "Also on Sundays.")
        progress("We open at nine. Every day. Also", "on Sundays. " * 1_000)

    rests = [each.payload["rest"] for each in events_of(tmp_path, happen) if each.kind is Kind.HEARD]
    # While the model writes, and where it is too long, the model is asked again.
    assert rests == [None, "Also on Sundays.", None]


def test_a_reply_that_is_cut_off_while_its_model_writes_is_recorded_as_unwritten(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        for name in ("cut", "whole"):
            events.publish(ReplyOpened(0, name))
        events.publish(ReplyWritten(0, "whole"))
        end(events, "cut", "We open at nine.", "Every")
        end(events, "whole", "We open at nine.", "Every day.")

    turns = [each.payload for each in events_of(tmp_path, happen) if each.kind is Kind.BOT_TURN]
    assert [each.get("unwritten") for each in turns] == [True, None]


def test_who_listens_to_a_call_is_in_its_session(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        for is_on in (True, False):
            events.publish(OperatorListened(events.now_ms(), is_on))

    states = [
        (each.payload["call_id"], each.payload["state"])
        for each in events_of(tmp_path, happen)
        if each.kind is Kind.LISTENED
    ]
    assert states == [("call", "began"), ("call", "ended")]


def test_a_camera_and_a_screen_are_recorded_as_transports_of_their_own(tmp_path: Path) -> None:
    def happen(events: CallEvents) -> None:
        for is_on, source in ((True, CAMERA), (True, SCREEN), (False, CAMERA)):
            events.publish(CameraChanged(events.now_ms(), is_on, source))

    found = [(each.kind, each.payload["transport"]) for each in events_of(tmp_path, happen)]
    assert found[:3] == [(Kind.JOINED, CAMERA), (Kind.JOINED, SCREEN), (Kind.LEFT, CAMERA)]


def test_a_call_is_in_the_records_from_its_begin_to_its_end(tmp_path: Path):
    joined, left = events_of(tmp_path, lambda events: events.publish(CallBegan(1)))
    assert [joined.kind, left.kind] == [Kind.JOINED, Kind.LEFT]
    assert joined.payload == left.payload == {"v": 1, "transport": "webrtc", "call_id": "call"}
