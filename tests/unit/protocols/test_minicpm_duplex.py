"""The MiniCPM-o protocols: the result that answers each chunk, and refused messages."""

import base64
import json
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.call_choices import VoiceNames
from parley.protocols.client_protocol import (
    Began,
    Begin,
    Faltered,
    Message,
    MustListen,
    Paused,
    Pictures,
    ProtocolError,
    QueueUpdate,
    Ready,
    ReplyAudio,
    ReplyOver,
    Resumed,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    Typed,
    UnitOver,
)
from parley.protocols.minicpm_duplex import SAID_BYTES_PER_MS, ChunkTracker, ClientPlayer, MiniCpmDuplex
from parley.protocols.minicpm_realtime import MiniCpmRealtime
from tests.minicpm_player import silences_ms

SECOND = base64.b64encode(np.zeros(16_000, "<f4").tobytes()).decode()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
TYPES = (
    "prepare",
    "audio_chunk",
    "pause",
    "resume",
    "stop",
    "interrupt",
    "text",
    "latency",
    "client_diagnostic",
    "?",
)
FIELDS = (
    "system_prompt",
    "config",
    "audio_base64",
    "frame_base64_list",
    "force_listen",
    "max_slice_nums",
    "timeout",
    "text",
    "ref_audio_base64",
    "system_content",
    "session",
    "audio",
    "video_frames",
)


def message(type_: str, **fields: object) -> str:
    return json.dumps({"type": type_, **fields})


def duplex(*, unit_ms: int = 1_000) -> MiniCpmDuplex:
    protocol = MiniCpmDuplex(lambda: 1.0)
    protocol.messages_for(Began("s"), 0)
    protocol.read(message("prepare"), 0)
    protocol.messages_for(Ready(unit_ms, 0, unit_ms >= 200), 0)
    return protocol


def code_of(protocol: MiniCpmDuplex | MiniCpmRealtime, text: str) -> str:
    with pytest.raises(ProtocolError) as refusal:
        protocol.read(text, 0)
    assert protocol.refused(refusal.value)
    return refusal.value.code


@given(st.lists(st.sampled_from((80, 160, 240, 500, 1_000)), min_size=1, max_size=40), st.data())
def test_ticked_by_the_clock_every_chunk_has_one_result_and_no_sound_is_lost(
    chunks_ms: list[int], data: st.DataObject
):
    book = ChunkTracker(80, by_arrival=False)
    sent, got, results = b"", b"", 0
    for chunk_ms in chunks_ms:
        assert not book.chunk(chunk_ms)
    # As many units as the chunks are long, and one for the unit in which they end.
    for number in range(sum(chunks_ms) // 80 + 1):
        piece = bytes([number % 251]) * data.draw(st.integers(0, 3))
        sent += piece
        book.audio(piece)
        answer = book.unit(UnitOver("speak" if piece else "listen", f"{number} "))
        if answer is not None:
            got += answer["audio"]
            results += 1
    last = book.unit(UnitOver("listen"))
    got += last["audio"] if last is not None else b""
    assert abs(results - len(chunks_ms)) <= 1
    assert sent.startswith(got)
    assert len(sent) - len(got) <= 3 * (max(chunks_ms) // 80 + 2)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_taken_as_they_come_every_chunk_is_answered_at_once_or_by_its_unit(tenths: list[int]):
    book = ChunkTracker(1_000, by_arrival=True)
    answered, heard_ms = 0, 0
    for tenth in tenths:
        chunk_ms = tenth * 25
        heard_ms += chunk_ms
        if book.chunk(chunk_ms):
            answered += 1
        else:
            assert book.unit(UnitOver("listen")) is not None
            answered += 1
    assert answered == len(tenths)


def test_what_was_cut_is_not_said_and_the_client_is_told():
    book = ChunkTracker(1_000, by_arrival=True)
    book.chunk(1_000)
    book.audio(b"lost")
    book.cut()
    answer = book.unit(UnitOver("yield", "words"))
    assert answer is not None and answer["interrupted"] and not answer["audio"]
    assert book.unit(UnitOver("listen"))["interrupted"] is False  # type: ignore[index]


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_reply_that_begins_where_another_one_ends_is_preceded_by_silence(is_cut: bool):
    second = 1_000 * SAID_BYTES_PER_MS
    book, player = ChunkTracker(100, by_arrival=False), ClientPlayer()

    def result(*units: tuple[bytes, bool], cut_before: int = -1) -> dict[str, object]:
        book.chunk(1_000)
        for number, (audio, ends) in enumerate(units):
            if number == cut_before:
                book.cut()
            book.audio(audio)
            answer = book.unit(UnitOver("speak" if audio else "listen", end_of_turn=ends))
        assert answer is not None
        return answer

    old, new, none = b"\x01" * (second // 10), b"\x02" * (second // 10), b""
    first = player.fed(result(*[(old, False)] * 10))
    assert first == old * 10
    # The first reply ends within the second chunk, and 300 ms of the next one come in it.
    ending = [(old, False)] * 3 + [(none, True)] + [(none, False)] * 3 + [(new, False)] * 3
    both = player.fed(result(*ending, cut_before=3 if is_cut else -1))
    kept = b"" if is_cut else old * 3
    assert both == kept + bytes(second - len(kept) - len(new) * 3) + new * 3
    # A whole chunk of it follows, and lasts until the next: no silence is put into the reply.
    assert player.fed(result(*[(new, False)] * 10)) == new * 10
    assert player.fed(result((new, False), (none, True), *[(none, False)] * 8)) == new


def test_a_chunk_is_read_in_the_order_in_which_it_counts():
    picture = base64.b64encode(b"jpeg").decode()
    actions = duplex().read(
        message("audio_chunk", audio_base64=SECOND, frame_base64_list=[picture], force_listen=True), 0
    )
    assert [type(action) for action in actions] == [MustListen, Pictures, Speech]


def test_prepare_is_read_once_and_all_of_it():
    protocol = MiniCpmDuplex(lambda: 1.0)
    voice = base64.b64encode(np.full(8, 0.5, "<f4").tobytes()).decode()
    text = message(
        "prepare",
        system_content=[{"type": "text", "text": "Be kind."}, {"type": "audio", "data": voice}],
        config={"temperature": 0.5, "chunk_ms": 1_000, "generate_audio": True},
    )
    update, begin = protocol.read(text, 0)
    assert isinstance(update, SessionUpdate) and begin == Begin()
    assert update.instructions == "Be kind." and update.settings == {"temperature": 0.5}
    assert update.llm_ref_audio is not None and update.llm_ref_audio.tolist() == [0.5] * 8
    assert code_of(protocol, text) == "invalid_state"


@pytest.mark.parametrize(
    ("clones", "unused"),
    [(True, None), (False, ["ref_audio_base64: the bot speaks with the deployment's voice"])],
)
def test_a_reference_voice_that_is_not_imitated_is_named(clones: bool, unused: list[str] | None):
    protocol = MiniCpmDuplex(lambda: 0.0)
    protocol.permit(instructions=True, voices=VoiceNames(clones=clones))
    protocol.read(json.dumps({"type": "prepare", "ref_audio_base64": SECOND}), 0)
    [*_, prepared] = protocol.messages_for(Ready(1_000), 0)
    assert prepared["type"] == "prepared" and prepared.get("unused") == unused


def test_the_queue_is_told_once_and_its_end_always():
    protocol = MiniCpmDuplex(lambda: 1.0)
    types = [
        received["type"]
        for place in (3, 2, 0, 0, 1, 0)
        for received in protocol.messages_for(QueueUpdate(place, 5.0, "ticket", 4), 0)
    ]
    assert types == ["queued", "queue_update", "queue_done", "queued", "queue_done"]


def test_an_engine_that_failed_takes_no_chunk_until_the_next_is_ready():
    protocol = duplex()
    [error] = protocol.messages_for(Faltered("it failed"), 0)
    assert error["code"] == "inference_error"
    assert code_of(protocol, message("audio_chunk", audio_base64=SECOND)) == "not_ready"
    assert not protocol.messages_for(Ready(1_000, 0, True), 0)
    assert protocol.read(message("audio_chunk", audio_base64=SECOND), 0)


@pytest.mark.parametrize(
    ("reason", "code"), [("stopped", 1000), ("timeout", 1000), ("queue_full", 1013), ("error", 1011)]
)
def test_close_codes(reason: str, code: int):
    assert duplex().goodbye(reason)[0] == code


@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5), st.booleans())
def test_whatever_is_sent_only_ever_a_refusal_is_raised(type_: str, fields: Message, prepared: bool):
    protocols: list[MiniCpmDuplex | MiniCpmRealtime] = [duplex() if prepared else MiniCpmDuplex(lambda: 1.0)]
    realtime = MiniCpmRealtime(sees=True)
    if prepared:
        realtime.messages_for(QueueUpdate(0), 0)
        realtime.messages_for(Ready(1_000, 0, True), 0)
    protocols.append(realtime)
    names = {
        "prepare": "session.update",
        "audio_chunk": "input_audio_buffer.append",
        "stop": "session.close",
    }
    for protocol, name in zip(protocols, (type_, names.get(type_, type_)), strict=True):
        try:
            protocol.read(json.dumps({"type": name, **fields}), 0)
        except ProtocolError as refusal:
            assert json.dumps(protocol.refused(refusal))


@given(st.text(max_size=200))
def test_what_is_no_json_is_refused(text: str):
    for protocol in (MiniCpmDuplex(lambda: 1.0), MiniCpmRealtime(sees=False)):
        assert code_of(protocol, text) in ("invalid_json", "missing_field", "unknown_event")


def test_the_realtime_dialect_by_its_states():
    protocol = MiniCpmRealtime(sees=False)
    update = message("session.update", session={"instructions": "Be kind."})
    assert [received["type"] for received in protocol.messages_for(QueueUpdate(0), 0)] == [
        "session.queue_done"
    ]
    update, _ = protocol.read(update, 0)
    assert isinstance(update, SessionUpdate) and update.instructions == "Be kind."
    append = message("input_audio_buffer.append", audio=SECOND)
    assert code_of(protocol, append) == "not_ready"
    assert [received["type"] for received in protocol.messages_for(Ready(1_000, 8, True), 0)] == [
        "session.created"
    ]
    frames = message("input_audio_buffer.append", audio=SECOND, video_frames=[SECOND])
    assert code_of(protocol, frames) == "invalid_payload"
    assert code_of(protocol, message("session.update", session={"instructions": "x"})) == "not_ready"
    assert protocol.read(append, 0) == [Speech(np.zeros(16_000, "<f4").tobytes())]
    assert protocol.messages_for(UnitOver("listen", kv_tokens=5), 0) == [
        {"type": "response.listen", "kv_cache_length": 5}
    ]
    protocol.messages_for(ReplyAudio(b"\0\0\0\0", 0.1), 0)
    [delta] = protocol.messages_for(UnitOver("speak", " Hello", end_of_turn=True), 0)
    assert delta["text"] == " Hello" and delta["end_of_turn"]
    assert not protocol.messages_for(Paused(1), 0) and not protocol.messages_for(Resumed(), 0)
    assert not protocol.messages_for(ReplyOver("r", True), 0)
    error, closed = protocol.messages_for(SessionEnded("queue_full", "the queue is full"), 0)
    assert error["error"]["code"] == "queue_full" and closed["reason"] == "error"
    assert protocol.goodbye("queue_full")[0] == 1013


def test_an_update_in_the_queue_is_kept_and_a_later_one_takes_its_place():
    protocol = MiniCpmRealtime(sees=False)
    protocol.messages_for(QueueUpdate(2), 0)
    first, begin = protocol.read(message("session.update", session={"instructions": "One."}), 0)
    assert isinstance(first, SessionUpdate) and first.instructions == "One." and begin == Begin()
    protocol.messages_for(QueueUpdate(0), 0)
    again = message("session.update", session={"instructions": "Two."})
    second, _ = protocol.read(again, 0)
    assert isinstance(second, SessionUpdate) and second.instructions == "Two."
    protocol.messages_for(Ready(1_000, 8, True), 0)
    # The same once more, by a client that has not read session.created yet.
    assert protocol.read(again, 0) == []


SCHEMA = json.loads((files("parley.protocols") / "schemas" / "minicpm_realtime.json").read_text())
VALIDATOR = jsonschema.Draft7Validator({**SCHEMA, "oneOf": [{"$ref": "#/definitions/server"}]})
NUMBERS = st.integers(0, 10_000)


@given(
    st.lists(
        st.one_of(
            st.builds(QueueUpdate, st.integers(0, 9), st.none() | st.floats(-1, 1e6), st.text(max_size=4)),
            st.builds(Ready, st.sampled_from((80, 1_000)), NUMBERS, st.booleans()),
            st.builds(ReplyAudio, st.sampled_from((b"", bytes(4), bytes(960))), st.just(10.0)),
            st.builds(ReplyOver, st.just("r"), st.booleans()),
            st.builds(
                UnitOver,
                st.sampled_from(("listen", "speak", "backchannel", "yield")),
                st.text(max_size=4),
                st.booleans(),
                kv_tokens=NUMBERS,
                lost=st.integers(0, 2),
            ),
            st.builds(Faltered, st.text(max_size=4)),
            st.builds(
                SessionEnded,
                st.sampled_from(("stopped", "timeout", "queue_full", "no_worker", "error", "session_lost")),
                st.text(max_size=4),
            ),
            st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
        ),
        max_size=30,
    ),
    st.sampled_from(("session.update", "input_audio_buffer.append", "session.close", "?")),
)
def test_every_event_of_the_realtime_dialect_is_valid_by_its_schema(happenings: list[Any], type_: str):
    protocol = MiniCpmRealtime(sees=True)
    protocol.messages_for(Began("s"), 0)
    for happening in happenings:
        if isinstance(happening, dict):
            try:
                actions = protocol.read(json.dumps({"type": type_, **happening}), 0)
                sent = [action.message for action in actions if isinstance(action, Send)]
            except ProtocolError as refusal:
                sent = list(protocol.refused(refusal))
        else:
            sent = list(protocol.messages_for(happening, 0))
        for each in sent:
            VALIDATOR.validate(each)


@given(st.lists(st.sampled_from((500, 1_000, 1_500, 3_000, 5_000)), min_size=1, max_size=12))
def test_chunks_of_any_length_have_one_answer_each(chunks_ms: list[int]):
    book = ChunkTracker(1_000, by_arrival=True)
    heard_ms = answers = units = 0
    for chunk_ms in chunks_ms:
        answers += book.chunk(chunk_ms)
        heard_ms += chunk_ms
        while (units + 1) * 1_000 <= heard_ms:
            units += 1
            answers += book.unit(UnitOver("listen")) is not None
    assert answers == len(chunks_ms)


def test_what_waits_for_a_unit_is_forgotten_in_a_pause():
    book = ChunkTracker(1_000, by_arrival=True)
    assert book.chunk(600)
    book.paused()
    # Nothing of it counts any more: this chunk begins another unit.
    assert book.chunk(600)


def test_the_next_token_comes_with_the_preparation():
    protocol = MiniCpmDuplex(lambda: 1.0)
    protocol.messages_for(Began("s", {"next_token": "t"}), 0)
    [_, prepared] = protocol.messages_for(Ready(1_000, 0, True), 0)
    assert prepared["next_token"] == "t"
    assert prepared["recording_session_id"] is None


def test_a_client_whose_call_is_recorded_reads_the_id_of_the_recording():
    protocol = MiniCpmDuplex(lambda: 1.0)
    protocol.messages_for(Began("s", {"recording_session_id": "s"}), 0)
    [_, prepared] = protocol.messages_for(Ready(1_000, 0, True), 0)
    assert prepared["recording_session_id"] == "s"


@given(st.lists(st.tuples(st.sampled_from((500, 1_000, 2_000)), st.integers(0, 2)), min_size=1, max_size=12))
def test_a_chunk_whose_units_were_never_taken_is_answered_with_silence(chunks: list[tuple[int, int]]):
    protocol = MiniCpmDuplex(lambda: 1.0)
    protocol.read(json.dumps({"type": "prepare", "system_prompt": "."}), 0)
    protocol.messages_for(Ready(1_000, 0, True), 0)
    heard_ms = accounted = 0
    answers: list[Message] = []
    for chunk_ms, most_lost in chunks:
        audio = base64.b64encode(bytes(chunk_ms * 64)).decode()
        actions = protocol.read(json.dumps({"type": "audio_chunk", "audio_base64": audio}), 0)
        answers += [action.message for action in actions if isinstance(action, Send)]
        heard_ms += chunk_ms
        while (waiting := heard_ms // 1_000 - accounted) > 0:
            lost = min(most_lost, waiting - 1)
            answers += protocol.messages_for(UnitOver("listen", lost=lost), 0)
            accounted += lost + 1
    assert [(answer["type"], answer["is_listen"]) for answer in answers] == [("result", True)] * len(chunks)


def test_of_the_realtime_dialect_too():
    protocol = MiniCpmRealtime(sees=False)
    protocol.messages_for(Ready(1_000, 0, True), 0)
    for _ in range(3):
        protocol.read(json.dumps({"type": "input_audio_buffer.append", "audio": SECOND}), 0)
    received = protocol.messages_for(UnitOver("listen", kv_tokens=7, lost=2), 0)
    assert received == [{"type": "response.listen", "kv_cache_length": 7}] * 3


@given(
    st.lists(
        st.tuples(st.sampled_from((500, 1_000, 2_000, 3_000)), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_said_in_a_unit_is_in_the_result_of_its_own_chunk(chunks: list[tuple[int, int, bool]]):
    """The audio of a unit is in the result of its chunk.

    Units are numbered, and contain their number; some are lost.
    """
    book = ChunkTracker(1_000, by_arrival=True)
    heard_ms = unit = 0
    for chunk_ms, most_lost, speaks in chunks:
        first = unit
        if book.chunk(chunk_ms):
            heard_ms += chunk_ms
            continue
        heard_ms += chunk_ms
        said: list[bytes] = []
        answers: list[Message] = []
        while (waiting := heard_ms // 1_000 - unit) > 0:
            lost = min(most_lost, waiting - 1) if unit > first else 0
            unit += lost
            if speaks:
                said.append(bytes([unit]))
                book.audio(said[-1])
            answers += book.lost(lost)
            answer = book.unit(UnitOver("speak" if speaks else "listen", lost=lost))
            answers += [] if answer is None else [answer]
            unit += 1
        [answer] = answers
        assert answer["audio"] == b"".join(said) and answer["is_listen"] is not speaks


def test_a_chunk_whose_last_units_are_lost_has_what_its_first_ones_said():
    book = ChunkTracker(1_000, by_arrival=True)
    book.chunk(2_000)
    book.chunk(1_000)
    book.audio(b"first")
    assert book.unit(UnitOver("speak", "one")) is None
    book.audio(b"third")
    [early] = book.lost(1)
    late = book.unit(UnitOver("speak", "three", lost=1))
    assert (early["audio"], early["text"]) == (b"first", "one") and not early["is_listen"]
    assert late is not None and (late["audio"], late["text"]) == (b"third", "three")


@given(st.sampled_from((240, 500, 1_000)), st.integers(1, 60), st.integers(1, 60))
def test_a_reply_by_the_clock_has_no_silence_in_it(chunk_ms: int, begins: int, units: int):
    protocol = duplex(unit_ms=80)
    chunk = message("audio_chunk", audio_base64=base64.b64encode(bytes(chunk_ms * 64)).decode())
    results: list[tuple[float, Message]] = []
    for number in range(begins + units + 30):
        if number * 80 % chunk_ms < 80:
            protocol.read(chunk, 0)
        speaks, ends = begins <= number < begins + units, number == begins + units - 1
        if speaks:
            protocol.messages_for(ReplyAudio(b"\1" * 80 * 96, 80.0), 0)
        unit = UnitOver("speak" if speaks else "listen", end_of_turn=ends)
        results += [(number * 80.0, each) for each in protocol.messages_for(unit, 0)]
    assert silences_ms(results) == []
    # Only silence was added, and before the first sound.
    said = b"".join(base64.b64decode(result["audio_data"]) for _, result in results)
    assert said.strip(b"\0") == b"\1" * units * 80 * 96


@pytest.mark.parametrize(("first_ms", "sent_ms"), [(600, 1_000), (60, 1_000), (1_040, 1_040)])
def test_the_first_result_of_a_reply_lasts_until_the_next(first_ms: int, sent_ms: int):
    protocol = duplex()
    lengths = []
    for audio_ms, ends in ((first_ms, False), (1_000, False), (300, True), (0, False), (400, True)):
        protocol.read(message("audio_chunk", audio_base64=SECOND), 0)
        protocol.messages_for(ReplyAudio(b"\1" * audio_ms * 96, float(audio_ms)), 0)
        [result] = protocol.messages_for(UnitOver("speak" if audio_ms else "listen", end_of_turn=ends), 0)
        lengths.append(len(base64.b64decode(result["audio_data"])) // 96)
    # The end of a reply is as long as it is, and so is one that is over with its first result.
    assert lengths == [sent_ms, 1_000, 300, 0, 400]


def test_a_backchannel_is_not_delayed():
    protocol = duplex()
    protocol.read(message("audio_chunk", audio_base64=SECOND), 0)
    protocol.messages_for(ReplyAudio(bytes(300 * 96), 300.0), 0)
    [result] = protocol.messages_for(UnitOver("backchannel"), 0)
    assert len(base64.b64decode(result["audio_data"])) == 300 * 96


def test_a_typed_turn_is_taken_where_the_deployment_takes_text():
    protocol = MiniCpmDuplex(lambda: 1.0)
    protocol.messages_for(Began("s", {"takes": ["text"]}), 0)
    protocol.read(message("prepare"), 0)
    assert code_of(protocol, message("text", text="Hello?")) == "not_ready"
    *_, prepared = protocol.messages_for(Ready(1_000, 0, True), 0)
    assert prepared["takes"] == ["text"]
    assert protocol.read(message("text", text=" Hello? "), 0) == [Typed("Hello?")]
    for text in ("  ", "a" * 2_001, 7, None):
        assert code_of(protocol, message("text", text=text)) == "invalid_payload"
    protocol.read(message("pause"), 0)
    assert code_of(protocol, message("text", text="Hello?")) == "invalid_state"
    assert code_of(duplex(), message("text", text="Hello?")) == "not_supported"
