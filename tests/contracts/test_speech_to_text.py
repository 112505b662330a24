"""Contract of all speech-to-text engines, the fake included.

Moonshine and Whisper run with the real libraries on tiny weights (``tests.tiny_moonshine``,
``tests.tiny_whisper``): those write a
sentence, but do not understand one. Tests that need understanding run on ``UNDERSTANDING`` engines only.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parley.core.errors import EngineError, ShapeError
from parley.core.media import samples_to_ms
from parley.models.stt import STT, SpeechStream, SpeechToText, Transcript
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.stt.moonshine_tiny import MoonshineTinyStt
from parley.models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt
from tests import human_speech
from tests.fakes.stt import ScriptedStt
from tests.fakes.worker import HostedStt, told_secret
from tests.listening import PIECE_BYTES, play, understand
from tests.nemo_environment import nemo_worker, until_loaded, write_models
from tests.tiny_moonshine import install_moonshine
from tests.tiny_whisper import install_whisper
from tests.voices import say, silence

# One decoder more than a stream needs: the contract uses two streams at once.
SMALL = PocketsphinxSettings(common_words=500, warm_decoders=2, cache_dir=Path("out/test-cache"))


def moonshine(models_dir: Path, *, word_timestamps: bool = False) -> SpeechToText:
    from parley.models.stt.moonshine import MoonshineSettings, MoonshineStt

    install_moonshine(models_dir, word_times=word_timestamps)
    return MoonshineStt(MoonshineSettings(models_dir=models_dir, word_timestamps=word_timestamps))


def whisper(models_dir: Path) -> SpeechToText:
    from parley.models.stt.whisper import WhisperSettings, WhisperStt

    install_whisper(models_dir)
    return WhisperStt(WhisperSettings(models_dir=models_dir, cpu_threads=1, partial_interval_ms=300))


def moonshine_tiny() -> SpeechToText:
    # With a frozen clock all streams make their passes at the same places, and results can be compared.
    return MoonshineTinyStt(human_speech.moonshine_tiny().settings, clock=lambda: 0.0)


class NemoInItsEnvironment(WorkerStt):
    """NeMo in a worker with its own packages, on a tiny random model."""

    def __init__(self, folder: Path) -> None:
        write_models(folder, QUESTION, "tdt")
        self._worker = nemo_worker(folder / "tdt.nemo", "--limit", "streams=64")
        url = self._worker.__enter__()
        until_loaded(url)
        patient = {"open_timeout_s": 20, "request_timeout_s": 20}
        super().__init__(WorkerSttSettings(url=url, secret_env=told_secret(), **patient))

    def close(self) -> None:
        self._worker.__exit__(None, None, None)


ENGINES: dict[str, Callable[[Path], SpeechToText]] = {
    "pocketsphinx": lambda _: PocketsphinxStt(SMALL),
    "pocketsphinx-documents": lambda _: PocketsphinxStt(
        SMALL.model_copy(
            update={"language_model": "documents", "sentences": ("Changing your pin is free of charge.",)}
        )
    ),
    "scripted": lambda _: ScriptedStt(),
    "moonshine_tiny": lambda _: moonshine_tiny(),
    "moonshine": moonshine,
    "moonshine-word-times": lambda models_dir: moonshine(models_dir, word_timestamps=True),
    "whisper": whisper,
    # A worker behind its socket, in a thread of the test.
    "worker": lambda _: HostedStt(ScriptedStt()),
    "nemo": lambda folder: NemoInItsEnvironment(folder),
    "worker-pocketsphinx": lambda _: HostedStt(PocketsphinxStt(SMALL)),
}
# Engines whose weights distinguish words, or whose script follows the voice.
UNDERSTANDING = (
    "moonshine_tiny",
    "pocketsphinx",
    "pocketsphinx-documents",
    "scripted",
    "worker",
    "worker-pocketsphinx",
)
QUESTION = silence(200) + say("what is your pin") + silence(200)


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SpeechToText]:
    made = ENGINES[request.param](tmp_path_factory.mktemp("models"))
    yield made
    if isinstance(made, HostedStt | NemoInItsEnvironment):
        made.close()


@pytest.fixture
def stream(engine: SpeechToText):
    opened = engine.open_stream()
    yield opened
    opened.close()


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(STT.names()) <= ENGINES.keys()


def test_silence_is_an_empty_final_transcript(stream: SpeechStream) -> None:
    assert understand(stream, silence(600)) == Transcript("", (), 0.0, final=True)


def test_an_utterance_without_audio_is_empty(stream: SpeechStream) -> None:
    stream.start()
    assert stream.finish().text == ""


def test_speech_becomes_words_with_times_and_confidence(stream: SpeechStream) -> None:
    heard = understand(stream, QUESTION)
    assert heard.final
    assert heard.text == " ".join(word.text for word in heard.words) != ""
    assert heard.text == heard.text.lower()
    assert 0.0 < heard.confidence <= 1.0
    assert all(0.0 <= word.confidence <= 1.0 for word in heard.words)


def test_word_times_follow_each_other_inside_the_utterance(stream: SpeechStream) -> None:
    words = understand(stream, QUESTION).words
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert all(word.start_ms < word.end_ms for word in words)
    assert times[-1] <= samples_to_ms(len(QUESTION) // 2, 16_000)


@pytest.mark.parametrize("engine", UNDERSTANDING, indirect=True)
def test_the_first_word_starts_with_the_voice(stream: SpeechStream) -> None:
    # The audio begins with 200 ms of silence.
    assert understand(stream, QUESTION).words[0].start_ms >= 100


def test_no_marks_of_the_engine_are_in_the_text(stream: SpeechStream) -> None:
    stream.start()
    texts = [partial.text for partial in play(stream, QUESTION + silence(800) + QUESTION)]
    texts.append(stream.finish().text)
    assert not any(mark in text for text in texts for mark in "<>[]()+")


def test_partials_come_while_speaking_and_only_when_the_text_changed(stream: SpeechStream) -> None:
    stream.start()
    partials = play(stream, QUESTION)
    assert partials
    assert not any(partial.final for partial in partials)
    assert all(before.text != after.text for before, after in zip(partials, partials[1:], strict=False))


def test_the_piece_size_does_not_change_what_is_heard(engine: SpeechToText) -> None:
    small, large = engine.open_stream(), engine.open_stream()
    assert understand(small, QUESTION, 320).text == understand(large, QUESTION, 3_200).text


def test_audio_outside_an_utterance_is_an_error(stream: SpeechStream) -> None:
    with pytest.raises(EngineError):
        stream.feed(silence(20))
    understand(stream, QUESTION)
    with pytest.raises(EngineError):
        stream.feed(silence(20))


def test_finishing_twice_is_an_error(stream: SpeechStream) -> None:
    understand(stream, QUESTION)
    with pytest.raises(EngineError):
        stream.finish()


def test_half_a_sample_is_refused(stream: SpeechStream) -> None:
    stream.start()
    with pytest.raises(ShapeError):
        stream.feed(b"\0")


def test_discarding_is_allowed_at_any_time(stream: SpeechStream) -> None:
    stream.discard()
    stream.start()
    play(stream, QUESTION)
    stream.discard()
    stream.discard()
    with pytest.raises(EngineError):
        stream.finish()


def test_a_new_start_forgets_the_open_utterance(stream: SpeechStream) -> None:
    stream.start()
    play(stream, QUESTION)
    assert understand(stream, silence(600)).text == ""


def test_utterances_of_one_caller_do_not_mix(stream: SpeechStream) -> None:
    first = understand(stream, QUESTION)
    assert understand(stream, silence(600)).text == ""
    # An engine may adapt to the caller's channel and improve; it may not repeat itself.
    assert 0 < len(understand(stream, QUESTION).words) <= len(first.words)


def test_callers_do_not_hear_each_other(engine: SpeechToText) -> None:
    alone = understand(engine.open_stream(), QUESTION)
    one, other = engine.open_stream(), engine.open_stream()
    one.start()
    other.start()
    for at in range(0, len(QUESTION), PIECE_BYTES):
        one.feed(QUESTION[at : at + PIECE_BYTES])
        other.feed(silence(20))
    assert other.finish().text == ""
    assert one.finish() == alone


def test_streams_work_in_threads_at_the_same_time(engine: SpeechToText) -> None:
    alone = understand(engine.open_stream(), QUESTION)
    heard: list[Transcript] = []
    threads = [
        threading.Thread(target=lambda: heard.append(understand(engine.open_stream(), QUESTION)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [alone] * 3


def test_closing_during_an_utterance_frees_what_it_held(engine: SpeechToText) -> None:
    for _ in range(12):
        stream = engine.open_stream()
        stream.start()
        stream.feed(silence(20))
        stream.close()
