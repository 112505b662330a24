"""Messages of moshi-server; the bytes are those of the server's serializer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.errors import PeerError
from parley.protocols.moshi_asr import (
    MarkerReturned,
    ServerRefused,
    WordFinished,
    WordRecognised,
    audio_message,
    marker_message,
    read_asr_message,
)


def test_audio_is_an_array_of_single_floats():
    assert audio_message(np.array([0.5, -1.0], dtype=np.float32)) == bytes.fromhex(
        "82a474797065a5417564696fa370636d92ca3f000000cabf800000"
    )


def test_a_marker_has_a_number():
    assert marker_message(7) == bytes.fromhex("82a474797065a64d61726b6572a2696407")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            "83" "a474797065" "a4576f7264" "a474657874" "a548656c6c6f"
            "aa73746172745f74696d65" "cb3ff4000000000000",
            WordRecognised("Hello", 1.25),
        ),
        (
            "82" "a474797065" "a7456e64576f7264" "a973746f705f74696d65" "cb4000000000000000",
            WordFinished(2.0),
        ),
        ("82" "a474797065" "a64d61726b6572" "a26964" "07", MarkerReturned(7)),
        (
            "82" "a474797065" "a54572726f72" "a76d657373616765" "b06e6f2066726565206368616e6e656c73",
            ServerRefused("no free channels"),
        ),
        ("81" "a474797065" "a55265616479", None),
        (
            "84" "a474797065" "a453746570" "a8737465705f696478" "cd0190" "a3707273" "92ca3f000000ca3f800000"
            "ac62756666657265645f70636d" "00",
            None,
        ),
    ],
)  # fmt: skip
def test_a_message_is_read(data: str, message: object):
    assert read_asr_message(bytes.fromhex(data)) == message


@pytest.mark.parametrize(
    "data",
    [
        "text",
        b"",
        b"<html>502 Bad Gateway</html>",
        b"\x81\xa4type",
        b"\x81\xa4type\x07",
        b"\x81\xa4text\xa4Word",
        b"\x82\xa4type\xa6Marker\xa2id\xa3two",
        b"\x83\xa4type\xa4Word\xa4text\xa2Hi\xaastart_time\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
        b"\x81\xa4type\xa5Ready\x00",
        b"\x91" * 100,
        b"\x81\xa4type\xa5Ready" + bytes(70_000),
    ],
)
def test_what_is_no_message_is_refused(data: bytes | str):
    with pytest.raises(PeerError):
        read_asr_message(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        read_asr_message(data)
    except PeerError:
        pass
