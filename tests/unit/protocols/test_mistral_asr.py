import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.errors import PeerError
from parley.protocols.mistral_asr import (
    MOST_BYTES,
    SessionFailed,
    SessionOpened,
    TextDone,
    TextPiece,
    append_message,
    flush_message,
    read_transcription_message,
    settings_message,
)


def test_messages_of_a_client():
    assert json.loads(append_message(b"\x01\x02")) == {
        "type": "input_audio.append",
        "audio": base64.b64encode(b"\x01\x02").decode(),
    }
    assert json.loads(flush_message()) == {"type": "input_audio.flush"}
    audio = {"audio_format": {"encoding": "pcm_s16le", "sample_rate": 16_000}}
    assert json.loads(settings_message(16_000, None)) == {"type": "session.update", "session": audio}
    assert json.loads(settings_message(16_000, 480))["session"] == {**audio, "target_streaming_delay_ms": 480}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "session.created", "session": {}}, SessionOpened()),
        ({"type": "transcription.text.delta", "text": " word"}, TextPiece(" word")),
        ({"type": "transcription.done", "text": "a word", "usage": {}}, TextDone("a word")),
        ({"type": "error", "error": {"message": "too many", "code": 1}}, SessionFailed("too many")),
        ({"type": "error", "error": {"message": {"detail": "no"}}}, SessionFailed('{"detail": "no"}')),
        ({"type": "session.updated", "session": {}}, None),
        ({"type": "transcription.language", "audio_language": "en"}, None),
    ],
)
def test_messages_of_the_server(fields: dict[str, object], message: object):
    assert read_transcription_message(json.dumps(fields)) == message


@pytest.mark.parametrize(
    "data",
    [
        *("", "[]", "{}", "<html>", '{"type": 1}', '{"type": "transcription.done"}'),
        *('{"type": "transcription.text.delta", "text": 1}', '{"type": "error"}', "[" * 100_000),
        " " * (MOST_BYTES + 1),
    ],
)
def test_what_is_no_message_is_refused(data: str):
    with pytest.raises(PeerError):
        read_transcription_message(data)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_message_is_read_or_refused(data: bytes | str):
    try:
        read_transcription_message(data)
    except PeerError:
        pass
