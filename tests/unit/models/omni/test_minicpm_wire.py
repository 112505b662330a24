"""The messages of a MiniCPM-o server, and invalid messages."""

import base64
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from parley.core.errors import PeerError
from parley.models.omni.minicpm_worker import wire


def result(**fields: object) -> str:
    return json.dumps({"type": "result", "is_listen": False, "text": "", "end_of_turn": False} | fields)


def sound(audio: np.ndarray) -> str:
    return base64.b64encode(audio.astype("<f4").tobytes()).decode()


def test_a_chunk_carries_sound_and_pictures_as_the_servers_code_names_them() -> None:
    audio = np.linspace(-1, 1, 16_000, dtype=np.float32)
    frame = np.full((48, 64, 3), 200, np.uint8)
    fields = json.loads(wire.audio_chunk(audio, [frame], force_listen=True, max_slice_nums=2))
    assert (
        fields["type"] == "audio_chunk" and fields["force_listen"] is True and fields["max_slice_nums"] == 2
    )
    assert np.array_equal(np.frombuffer(base64.b64decode(fields["audio_base64"]), "<f4"), audio)
    [picture] = fields["frame_base64_list"]
    seen = Image.open(io.BytesIO(base64.b64decode(picture)))
    assert seen.format == "JPEG" and seen.size == (64, 48)
    assert "frame_base64_list" not in json.loads(
        wire.audio_chunk(audio, [], force_listen=False, max_slice_nums=1)
    )


def test_the_beginning_says_all_settings_and_both_voices() -> None:
    voice = np.full(8_000, 0.25, np.float32)
    fields = json.loads(
        wire.prepare("Be kind.", {"top_k": 3}, llm_ref_audio=voice, tts_ref_audio=None, max_slice_nums=1)
    )
    assert fields["system_prompt"] == "Be kind." and fields["config"] == {"top_k": 3}
    assert fields["deferred_finalize"] is True and "tts_ref_audio_base64" not in fields
    assert len(base64.b64decode(fields["ref_audio_base64"])) == 4 * 8_000


def test_a_result_that_listens_brings_no_silence() -> None:
    message = wire.parse(result(is_listen=True, audio_data=sound(np.zeros(24_000))))
    assert isinstance(message, wire.Result) and message.is_listen and not len(message.audio)


def test_a_result_that_speaks_has_its_sound_and_its_costs() -> None:
    message = wire.parse(
        result(
            text=" Hello",
            audio_data=sound(np.full(12_000, 0.5)),
            end_of_turn=True,
            cost_llm_ms=100.5,
            cost_tts_prep_ms=None,
            cost_tts_ms=20,
            cost_token2wav_ms=30,
            cost_all_ms=-1,
            kv_cache_length=312,
            n_tokens=7,
        )
    )
    assert isinstance(message, wire.Result)
    assert message.audio.dtype == np.float32 and len(message.audio) == 12_000
    assert (message.text, message.end_of_turn, message.kv_tokens) == (" Hello", True, 312)
    assert (message.cost_llm_ms, message.cost_tts_ms, message.cost_all_ms) == (100.5, 50.0, 0.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"type":"queued","position":2,"estimated_wait_s":12.5,"ticket_id":"q_1"}', wire.Waiting(2, 12.5)),
        ('{"type":"queue_update","position":1,"estimated_wait_s":null}', wire.Waiting(1, 0.0)),
        ('{"type":"queue_done"}', wire.Assigned()),
        ('{"type":"prepared","prompt_length":8}', wire.Prepared()),
        ('{"type":"error","error":"No audio"}', wire.ServerError("No audio")),
        ('{"type":"timeout","reason":"pause"}', wire.ServerEnded("pause")),
        ('{"type":"stopped"}', wire.ServerEnded("stopped")),
        ('{"type":"vad_state","speaking":true}', wire.Other("vad_state")),
    ],
)
def test_messages_of_the_server(data: str, message: wire.Message) -> None:
    assert wire.parse(data) == message


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01",
        "not json",
        "[1]",
        "{}",
        '{"type": 3}',
        "[" * 100_000,
        result(is_listen="yes"),
        result(is_listen=None),
        result(end_of_turn=1),
        result(text=7),
        result(text="x" * 5_000),
        result(audio_data="AAA"),
        result(audio_data="AAAA AAAA"),
        result(audio_data="AAAA"),
        result(audio_data=[0.0]),
        result(n_tokens="many"),
        result(cost_llm_ms=float("nan")),
        '{"type":"error","error":{"code":1}}',
    ],
)
def test_what_is_no_message_is_refused(data: str | bytes) -> None:
    with pytest.raises(PeerError):
        wire.parse(data)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_any_field_is_a_message_or_refused(value: object) -> None:
    for name in ("is_listen", "text", "audio_data", "end_of_turn", "kv_cache_length", "type"):
        try:
            wire.parse(result(**{name: value}))
        except PeerError:
            continue
