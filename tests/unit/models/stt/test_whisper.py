import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from parley.command.fetch_models import whisper_files
from parley.core.errors import ConfigError, EngineError
from parley.models.stt import RecordedPiece, Transcript
from parley.models.stt.whisper import WhisperSettings, WhisperStt
from tests.listening import Ticking, play, understood_in_a_child
from tests.tiny_whisper import install_whisper
from tests.voices import say, silence, tone

SPEECH = silence(200) + say("what is your pin") + silence(200)


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    install_whisper(folder)
    install_whisper(folder, "lost", ends=False)
    return folder


def engine_of(models_dir: Path, **settings: object) -> WhisperStt:
    return WhisperStt(
        WhisperSettings.model_validate({"models_dir": models_dir, "cpu_threads": 1, **settings})
    )


def test_what_is_opened_is_fetched(tmp_path: Path) -> None:
    settings = WhisperSettings(models_dir=tmp_path)
    fetched = {tmp_path / remote.path for remote in whisper_files()}
    assert {settings.folder / name for name in ("model.bin", "config.json", "tokenizer.json")} <= fetched


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count attempts to reach the network: the only way out is a proxy that notes the caller and hangs up."""
    attempts: list[str] = []

    class Refusal(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            attempts.append(self.rfile.readline().decode())

    with socketserver.TCPServer(("127.0.0.1", 0), Refusal) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.upper(), address)
        for name in ("no_proxy", "NO_PROXY", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield attempts
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("missing", ["model.bin", "config.json", "tokenizer.json"])
def test_a_missing_file_says_make_models_and_nothing_is_fetched(
    missing: str, tmp_path: Path, fetches: list[str]
) -> None:
    (install_whisper(tmp_path) / missing).unlink()
    with pytest.raises(ConfigError, match=f"{missing}.*make models"):
        engine_of(tmp_path)
    assert fetches == []


def test_a_model_is_a_name_and_not_a_path() -> None:
    with pytest.raises(ValidationError):
        WhisperSettings(model="../../etc")


def test_a_broken_file_is_an_engine_error_that_names_the_folder(tmp_path: Path) -> None:
    folder = install_whisper(tmp_path)
    (folder / "model.bin").write_bytes(b"half a download")
    with pytest.raises(EngineError, match=str(folder)) as caught:
        engine_of(tmp_path)
    assert not caught.value.retryable


def test_a_language_that_the_model_does_not_know_is_refused(models_dir: Path) -> None:
    with pytest.raises(ConfigError, match="base.en does not support the language 'de'"):
        engine_of(models_dir, language="de")


def test_words_have_measured_times_and_probabilities(models_dir: Path) -> None:
    stream = engine_of(models_dir).open_stream()
    stream.start()
    stream.feed(SPEECH)
    heard = stream.finish()
    assert heard.text == "what is your pin"
    assert not any(word.estimated for word in heard.words)
    assert all(type(word.confidence) is float for word in heard.words)
    # The tiny model attends to a fifth of a second for each token.
    assert [word.end_ms - word.start_ms for word in heard.words[1:]] == [200, 200, 200]


def test_there_are_no_partials_unless_they_are_wanted(models_dir: Path) -> None:
    stream = engine_of(models_dir).open_stream()
    stream.start()
    assert play(stream, SPEECH * 3) == []
    assert stream.finish().text


def test_dear_partials_are_rarer(models_dir: Path) -> None:
    counts = []
    for step_s in (0.0, 0.5):
        settings = WhisperSettings(
            models_dir=models_dir, model="lost", cpu_threads=1, partial_interval_ms=200
        )
        stream = WhisperStt(settings, clock=Ticking(step_s)).open_stream()
        stream.start()
        # The text of the lost model is bounded by the length of the audio, so each partial has more words.
        counts.append(len(play(stream, SPEECH * 2)))
        stream.close()
    assert counts[0] >= 8
    assert 2 <= counts[1] <= 4


def test_a_model_that_is_lost_writes_no_more_than_could_be_said(models_dir: Path) -> None:
    stream = engine_of(models_dir, model="lost").open_stream()
    stream.start()
    stream.feed(SPEECH)
    words = stream.finish().words
    seconds = len(SPEECH) / 32_000
    # Two windows at most: the second follows the last word.
    assert 0 < len(words) <= 2 * (16 + 10 * seconds)


def test_noise_alone_is_not_decoded(models_dir: Path) -> None:
    stream = engine_of(models_dir, partial_interval_ms=300).open_stream()
    for audio in (silence(3_000), tone(3_000)):
        stream.start()
        # The tiny model would write its sentence.
        assert play(stream, audio) == []
        assert stream.finish() == Transcript("", (), 0.0, final=True)


def test_words_after_a_long_noise_count_from_the_start_of_the_utterance(models_dir: Path) -> None:
    stream = engine_of(models_dir).open_stream()
    stream.start()
    play(stream, tone(4_000) + SPEECH)
    words = stream.finish().words
    assert 2_900 <= words[0].start_ms <= 4_300


def test_a_long_utterance_is_decoded_in_parts_with_one_time_line(models_dir: Path) -> None:
    sentence = say("what is your pin") + silence(900)
    times_said = 12
    stream = engine_of(models_dir, max_segment_ms=10_000).open_stream()
    stream.start()
    play(stream, sentence * times_said)
    heard = stream.finish()
    times = [time for word in heard.words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    duration_ms = len(sentence) * times_said // 32
    assert duration_ms - 10_000 < times[-1] <= duration_ms
    # The tiny model writes its sentence once for each part; parts are cut in their last pause.
    assert heard.text.count("what is your pin") == duration_ms // 10_000 + 1
    # A part begins in a pause: the distance of its first word from a pause is at most the pause's length.
    starts = [word.start_ms for word in heard.words if word.text == "what"]
    sentence_ms, voice_ms = len(sentence) // 32, len(say("what is your pin")) // 32
    assert all(start_ms % sentence_ms >= voice_ms for start_ms in starts[1:])


def test_silence_after_a_part_is_not_decoded(models_dir: Path) -> None:
    stream = engine_of(models_dir, max_segment_ms=10_000, partial_interval_ms=1_000).open_stream()
    stream.start()
    partials = play(stream, say("what is your pin") + silence(12_000))
    assert [partial.text for partial in partials] == ["what is your pin"]
    assert stream.finish().text == "what is your pin"


def test_saved_audio_may_come_in_one_piece(models_dir: Path) -> None:
    stream = engine_of(models_dir, max_segment_ms=10_000).open_stream()
    stream.start()
    stream.feed(SPEECH + silence(24_000) + SPEECH)
    words = stream.finish().words
    assert [word.text for word in words] == ["what", "is", "your", "pin"] * 2
    # The second part has no voice and is skipped.
    assert words[4].start_ms >= 19_000


def test_streams_are_counted_whatever_ends_them(models_dir: Path) -> None:
    engine = engine_of(models_dir)
    for end in ("finish", "discard", "close", "start"):
        stream = engine.open_stream()
        stream.start()
        stream.feed(SPEECH)
        assert engine.speakers == 1
        getattr(stream, end)()
        stream.close()
        stream.close()
        assert engine.speakers == 0


async def test_the_engine_works_in_a_process_of_its_own(models_dir: Path) -> None:
    settings = WhisperSettings(models_dir=models_dir, cpu_threads=1, partial_interval_ms=300)
    final = await understood_in_a_child("parley.models.stt.whisper:WhisperStt", settings, SPEECH)
    assert final.text == "what is your pin"
    assert final.final


def test_pieces_of_a_recording_are_decoded_together(models_dir: Path) -> None:
    engine = engine_of(models_dir)
    spans_s = (2.0, 0.5, 3.25, *[1.5] * engine.batch_pieces)
    found = engine.transcribe(
        [RecordedPiece(np.full(int(span_s * 16_000), 0.1, np.float32), ()) for span_s in spans_s]
    )
    assert len(found) == len(spans_s)
    for each, span_s in zip(found, spans_s, strict=True):
        assert each.written == "What is your PIN?"
        assert [word.text for word in each.words] == ["what", "is", "your", "pin"]
        assert 0 <= each.words[0].start_ms < each.words[-1].end_ms <= span_s * 1_000
        assert not any(word.estimated for word in each.words)
    assert found[0].words[1].start_ms == found[2].words[1].start_ms > 0
    assert engine.transcribe([]) == []
