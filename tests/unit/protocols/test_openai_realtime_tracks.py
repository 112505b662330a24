"""OpenAI's realtime protocol for a client whose sound goes by tracks of WebRTC."""

import pytest

from parley.protocols.client_protocol import (
    CallerStarted,
    CancelResponse,
    Codec,
    EndTurn,
    Format,
    ReplyAudio,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
    Speech,
    Trimmed,
)
from parley.protocols.openai_realtime.state import MOST_HELD_MS
from tests.unit.protocols.test_openai_realtime import HALF_SECOND, OFF, Talk, message

RATE_HZ = 16_000
# 100 ms.
PIECE = bytes(RATE_HZ // 10 * 2)
SOUND = ReplyAudio(b"", 40.0)


def speaking() -> Talk:
    """Return a conversation in which a reply is heard."""
    talk = Talk(has_tracks=True)
    talk.report(ReplyBegan("a"), SOUND, ReplyWords("We open"), SOUND, ReplyWords("at nine."))
    return talk


def test_the_sound_of_a_reply_begins_once_and_no_audio_is_sent():
    talk = speaking()
    started = [each for each in talk.received if each["type"] == "output_audio_buffer.started"]
    assert [each["response_id"] for each in started] == [talk.order.response]
    assert "response.output_audio.delta" not in talk.types()


def test_the_sound_has_stopped_after_the_response_is_done():
    talk = speaking()
    talk.report(ReplyOver("a"))
    assert talk.types()[-2:] == ["response.done", "output_audio_buffer.stopped"]
    talk.order.over()


def test_an_interruption_clears_the_sound_before_the_response_is_done():
    talk = speaking()
    begin = len(talk.received)
    talk.report(CallerStarted(0), ReplyOver("a", was_cut=True), Trimmed("a", 60, "We"))
    assert talk.types(begin) == [
        "input_audio_buffer.speech_started", "output_audio_buffer.cleared", "response.output_audio.done",
        "response.output_audio_transcript.done", "response.content_part.done", "response.output_item.done",
        "conversation.item.done", "response.done", "conversation.item.truncated",
    ]  # fmt: skip
    item_id = talk.received[-1]["item_id"]
    talk.say("conversation.item.retrieve", item_id=item_id)
    assert talk.received[-1]["item"]["content"] == [{"type": "output_audio", "transcript": "We"}]


def test_a_reply_that_is_only_read_has_no_sound():
    talk = Talk(has_tracks=True)
    talk.say("session.update", session={"output_modalities": ["text"]})
    assert not talk.protocol.speaks("a")
    talk.report(ReplyBegan("a"), SOUND, ReplyWords("We open."))
    talk.say("session.update", session={"output_modalities": ["audio"]})
    # The next one is heard.
    assert not talk.protocol.speaks("a") and talk.protocol.speaks("b")
    talk.report(ReplyOver("a"))
    assert not any(each.startswith("output_audio_buffer") for each in talk.types())


def test_a_client_cancels_the_response_and_then_clears_its_sound():
    talk = speaking()
    assert talk.say("response.cancel") == [CancelResponse()]
    assert talk.say("output_audio_buffer.clear") == []
    talk.report(ReplyOver("a", was_cut=True))
    assert talk.types().count("output_audio_buffer.cleared") == 1
    assert talk.received[-1]["response"]["status_details"]["reason"] == "client_cancelled"


def test_a_client_clears_the_sound_alone_or_where_there_is_none():
    talk = speaking()
    assert talk.say("output_audio_buffer.clear") == [CancelResponse()]
    talk.report(ReplyOver("a", was_cut=True))
    count = len(talk.received)
    assert talk.say("output_audio_buffer.clear") == [] and len(talk.received) == count


def test_the_server_has_decided_what_was_heard_and_not_the_client():
    talk = speaking()
    talk.report(ReplyOver("a", was_cut=True), Trimmed("a", 60, "We"))
    item_id = talk.received[-1]["item_id"]
    assert talk.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=80) == []
    assert talk.received[-1]["type"] == "conversation.item.truncated"
    assert talk.received[-1]["audio_end_ms"] == 60


@pytest.mark.parametrize("part", ["append", "item"])
def test_the_caller_s_audio_is_not_taken_from_events(part: str):
    talk = Talk(has_tracks=True)
    if part == "append":
        wanted = talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    else:
        spoken = {"content": [{"type": "input_audio", "audio": HALF_SECOND}]}
        wanted = talk.say("conversation.item.create", item={**message(""), **spoken})
    assert wanted == [] and talk.error()["code"] == "not_supported"


def test_the_track_is_heard_with_turn_detection_and_waits_for_its_commit_without():
    talk = Talk(has_tracks=True)
    assert talk.protocol.hear(PIECE, RATE_HZ)
    talk.say("session.update", session=OFF)
    spoken = b"".join(bytes([number, 0]) * (len(PIECE) // 2) for number in range(1, 4))
    assert not talk.protocol.hear(b"\5\0" * 800, RATE_HZ)
    talk.say("input_audio_buffer.clear")
    assert not talk.protocol.hear(spoken, RATE_HZ)
    speech, end = talk.say("input_audio_buffer.commit")
    # What was said before the button was pressed is not in it.
    assert speech == Speech(spoken, is_whole=True) and isinstance(end, EndTurn)
    assert talk.protocol.input_format == Format(Codec.PCM16, RATE_HZ)
    assert talk.types()[-3:] == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]


def test_a_track_that_is_never_committed_takes_no_more_than_is_kept():
    talk = Talk(has_tracks=True)
    talk.say("session.update", session=OFF)
    for number in range(MOST_HELD_MS // 1000 + 3):
        talk.protocol.hear(bytes([number, 0]) * RATE_HZ, RATE_HZ)
    [speech, _] = talk.say("input_audio_buffer.commit")
    assert isinstance(speech, Speech) and len(speech.data) == MOST_HELD_MS * RATE_HZ // 1000 * 2
    assert speech.data[0] == 3 and speech.data[-2] == MOST_HELD_MS // 1000 + 2


def test_nothing_is_left_to_commit_after_turn_detection():
    talk = Talk(has_tracks=True)
    talk.say("session.update", session=OFF)
    talk.protocol.hear(PIECE * 3, RATE_HZ)
    talk.say("session.update", session={"audio": {"input": {"turn_detection": {"type": "server_vad"}}}})
    assert talk.protocol.hear(PIECE, RATE_HZ)
    talk.say("session.update", session=OFF)
    assert talk.say("input_audio_buffer.commit") == []
    assert talk.error()["code"] == "input_audio_buffer_commit_empty"


def test_the_beginning_of_speech_is_a_position_in_the_track():
    talk = Talk(has_tracks=True)
    for _ in range(20):
        talk.protocol.hear(PIECE, RATE_HZ)
    [started] = talk.report(CallerStarted(1_500))
    assert started["audio_start_ms"] == 1_500
    [started] = Talk(has_tracks=True).report(CallerStarted(1_500))
    assert started["audio_start_ms"] == 0
