"""Contract of all speech-to-text engines (``parley.contracts``), the fake included.

Moonshine and Whisper run with the real libraries on tiny weights (``tests.tiny_moonshine``,
``tests.tiny_whisper``): those write a
sentence, but do not understand one. Both run once more on weights that understand
(``tests.human_speech``): Moonshine's library on those of the embedded recogniser, and Whisper on tiny.en,
where it was fetched. Tests that need understanding run on ``UNDERSTANDING`` engines only.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parley.contracts.speech import question, understand
from parley.contracts.speech_to_text import SpeechToTextContract
from parley.models.stt import STT, SpeechToText
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.stt.moonshine_tiny import MoonshineTinyStt
from parley.models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt
from tests import human_speech
from tests.fakes.stt import ScriptedStt
from tests.fakes.worker import HostedStt, shared_secret
from tests.nemo_environment import nemo_worker, until_loaded, write_models
from tests.tiny_moonshine import install_moonshine
from tests.tiny_whisper import install_whisper

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


def moonshine_library(models_dir: Path) -> SpeechToText:
    from parley.models.stt.moonshine import MoonshineSettings, MoonshineStt

    human_speech.install_moonshine_tiny(models_dir)
    return MoonshineStt(MoonshineSettings(model="tiny", models_dir=models_dir), clock=lambda: 0.0)


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
        super().__init__(WorkerSttSettings(url=url, secret_env=shared_secret(), **patient))

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
    "moonshine-library": moonshine_library,
    "whisper": whisper,
    "whisper-tiny.en": lambda _: human_speech.whisper_tiny(
        cpu_threads=1, partial_interval_ms=300, clock=lambda: 0.0
    ),
    # A worker behind its socket, in a thread of the test.
    "worker": lambda _: HostedStt(ScriptedStt()),
    "nemo": lambda folder: NemoInItsEnvironment(folder),
    "worker-pocketsphinx": lambda _: HostedStt(PocketsphinxStt(SMALL)),
}
# Engines whose weights distinguish words, or whose script follows the voice.
UNDERSTANDING = (
    "moonshine-library",
    "moonshine_tiny",
    "pocketsphinx",
    "pocketsphinx-documents",
    "scripted",
    "whisper-tiny.en",
    "worker",
    "worker-pocketsphinx",
)
# Those of them whose first word begins with the audio: Moonshine's library has no times for its model tiny,
# and Whisper's are not exact enough.
FROM_THE_BEGINNING = ("moonshine-library", "whisper-tiny.en")
# Those that understand a person in a recording.
OF_PEOPLE = ("moonshine-library", "moonshine_tiny", "whisper-tiny.en")
QUESTION = question()
# NeMo loads for a minute; ``tests/peers/test_nemo_worker.py`` hears with it in every run.
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow) if name == "nemo" else name for name in ENGINES]


@pytest.fixture(scope="module", params=PARAMETERS)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SpeechToText]:
    made = ENGINES[request.param](tmp_path_factory.mktemp("models"))
    yield made
    if isinstance(made, HostedStt | NemoInItsEnvironment):
        made.close()


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(STT.names()) <= ENGINES.keys()


class TestSpeechToText(SpeechToTextContract):
    """The contract, on every engine."""


@pytest.mark.parametrize("engine", sorted(set(UNDERSTANDING) - set(FROM_THE_BEGINNING)), indirect=True)
def test_the_first_word_starts_with_the_voice(engine: SpeechToText) -> None:
    # The audio begins with 200 ms of silence.
    assert understand(engine.open_stream(), QUESTION).words[0].start_ms >= 100


@pytest.mark.parametrize("engine", OF_PEOPLE, indirect=True)
def test_a_person_is_understood(engine: SpeechToText) -> None:
    heard = understand(engine.open_stream(), human_speech.opening())
    assert heard.text == human_speech.OPENING
    # The reader begins after 1.2 s, and speaks to the end of the recording.
    assert heard.words[0].start_ms < 2_000
    assert human_speech.OPENING_MS - 1_500 < heard.words[-1].end_ms <= human_speech.OPENING_MS + 200
    assert heard.confidence > 0.6
