from pathlib import Path

import pytest

from parley.batch.settings import RecogniserChoice
from parley.batch.transcript import (
    TranscribedWord,
    Transcription,
    TranscriptSegment,
    as_text,
    as_vtt,
    read_transcription,
    sweep_outputs,
    write_transcription,
    written_key,
)
from parley.core.errors import MediaError


def segment(start_ms: int, text: str, speaker: str | None = None) -> TranscriptSegment:
    word = TranscribedWord(text=text, start_ms=start_ms, end_ms=start_ms + 500, confidence=1, estimated=True)
    return TranscriptSegment(
        start_ms=start_ms, end_ms=start_ms + 500, speaker=speaker, text=text, confidence=1, words=(word,)
    )


def transcription(*segments: TranscriptSegment) -> Transcription:
    return Transcription(
        key="k" * 64,
        source="a.wav",
        duration_ms=10_000,
        speech_ms=1_000,
        channels="split",
        recogniser=RecogniserChoice(name="moonshine_tiny"),
        segments=segments,
    )


def test_captions_name_the_voices_and_hold_no_marks_of_the_text():
    found = transcription(segment(1_250, "I said <stop> & go", "caller"), segment(3_601_000, "Yes."))
    assert as_vtt(found) == (
        "WEBVTT\n\n"
        "00:00:01.250 --> 00:00:01.750\n<v caller>I said &lt;stop&gt; &amp; go\n\n"
        "01:00:01.000 --> 01:00:01.500\nYes.\n"
    )


def test_text_has_a_line_for_each_stretch_of_a_speaker():
    found = transcription(
        segment(0, "Hello.", "caller"),
        segment(1_000, "Is it open?", "caller"),
        segment(61_000, "Yes.", "agent"),
    )
    assert as_text(found) == "[00:00:00] caller: Hello. Is it open?\n[00:01:01] agent: Yes.\n"
    assert as_text(transcription(segment(0, "One."), segment(900, "Two."))) == (
        "[00:00:00] One.\n[00:00:00] Two.\n"
    )
    assert as_text(transcription()) == ""


def test_what_was_written_is_read_again_and_replaces_what_was_there(tmp_path: Path):
    write_transcription(tmp_path, transcription())
    found = transcription(segment(0, "Grüße."))
    write_transcription(tmp_path, found)
    assert read_transcription(tmp_path / "a.wav.json") == found
    assert written_key(tmp_path, "a.wav") == found.key
    assert {path.name for path in tmp_path.iterdir()} == {"a.wav.json", "a.wav.vtt", "a.wav.txt"}


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path: Path):
    for name in (".a.wav.vtt.x1y2", ".b.wav.vtt.x1y2", ".a.wav.vtt", "a.wav.vtt.x1y2", ".hidden"):
        (tmp_path / name).write_bytes(b"half")
    sweep_outputs(tmp_path, ["a.wav", "missing/c.wav"])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".b.wav.vtt.x1y2", ".a.wav.vtt", "a.wav.vtt.x1y2", ".hidden"}


def test_another_program_s_file_has_no_key_and_is_no_transcription(tmp_path: Path):
    assert written_key(tmp_path, "a.wav") is None
    (tmp_path / "a.wav.json").write_text('{"text": "mine"}')
    assert written_key(tmp_path, "a.wav") is None
    with pytest.raises(MediaError, match="not a transcription"):
        read_transcription(tmp_path / "a.wav.json")
