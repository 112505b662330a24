"""Contract (``parley.contracts``) of all speech synthesis engines, the fake included."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parley.contracts.text_to_speech import CLAUSE, TextToSpeechContract, speak
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.espeak import EspeakTts
from parley.models.tts.fallback import FallbackTts
from parley.models.tts.flite import FliteSettings, FliteTts
from parley.models.tts.hibari import HibariTts
from parley.models.tts.phrase_cache import PhraseCache
from tests.fakes.tts import ToneTts
from tests.fakes.worker import HostedTts
from tests.speaking import at_once, pcm

ENGINES: dict[str, Callable[[], TextToSpeech]] = {
    "hibari": HibariTts,
    "flite-slt": FliteTts,
    "flite-rms": lambda: FliteTts(FliteSettings(voice="rms")),
    "flite-awb": lambda: FliteTts(FliteSettings(voice="awb")),
    "flite-kal16": lambda: FliteTts(FliteSettings(voice="kal16")),
    "espeak": EspeakTts,
    "tone": ToneTts,
    "tone that keeps the clause": lambda: PhraseCache(ToneTts(), [CLAUSE]),
    "worker": lambda: HostedTts(FliteTts()),
    "worker-tone": lambda: HostedTts(ToneTts()),
    "espeak behind a voice that fails": lambda: FallbackTts(ToneTts(fail_after_pieces=0), EspeakTts()),
}
# Engines that need files, here tiny ones: the package, and the engine on files that are written into a
# folder. Those whose exports may report durations are tested without and with them.
MODEL_ENGINES: dict[str, tuple[str, Callable[[Path], TextToSpeech]]] = {
    "kokoro": ("kokoro_onnx", lambda folder: tiny_kokoro(folder, durations=False)),
    "kokoro-durations": ("kokoro_onnx", lambda folder: tiny_kokoro(folder, durations=True)),
    "kokoro-in-a-worker": ("kokoro_onnx", lambda folder: HostedTts(tiny_kokoro(folder, durations=True))),
    "piper": ("piper", lambda folder: tiny_piper(folder, durations=False)),
    "piper-durations": ("piper", lambda folder: tiny_piper(folder, durations=True)),
    "supertonic": ("supertonic", lambda folder: tiny_supertonic(folder)),
}
# Fills two windows of Kokoro.
LONG = "The monthly fee is five dollars and fifty cents, and you can cancel it whenever you want to."


def tiny_kokoro(folder: Path, *, durations: bool) -> TextToSpeech:
    from parley.models.tts.kokoro import KokoroSettings, KokoroTts
    from tests.tiny_voices import write_kokoro

    write_kokoro(folder, durations=durations)
    return KokoroTts(KokoroSettings(models_dir=folder))


def tiny_piper(folder: Path, *, durations: bool) -> TextToSpeech:
    from parley.models.tts.piper import PiperSettings, PiperTts
    from tests.tiny_voices import write_piper

    write_piper(folder, durations=durations)
    return PiperTts(PiperSettings(models_dir=folder))


def tiny_supertonic(folder: Path) -> TextToSpeech:
    from parley.models.tts.supertonic import SupertonicSettings, SupertonicTts
    from tests.tiny_voices import write_supertonic

    write_supertonic(folder)
    return SupertonicTts(SupertonicSettings(models_dir=folder))


@pytest.fixture(scope="module", params=[*ENGINES, *MODEL_ENGINES])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TextToSpeech]:
    if request.param in ENGINES:
        made = ENGINES[request.param]()
    else:
        made = engine_with_files(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    end(made)


def end(engine: TextToSpeech) -> None:
    if isinstance(engine, HostedTts):
        engine.close()


def engine_with_files(name: str, folder: Path) -> TextToSpeech:
    package, build = MODEL_ENGINES[name]
    for needed in (package, "onnx"):
        pytest.importorskip(needed, reason=f"{name} is tested with the package {needed}")
    return build(folder)


def test_the_registry_knows_the_engines():
    assert {"espeak", "flite", "kokoro", "piper", "supertonic"} <= set(TTS.names())
    assert TTS.create("flite").rate_hz == 16_000


class TestTextToSpeech(TextToSpeechContract):
    """The contract, on every engine."""


@pytest.fixture(params=list(MODEL_ENGINES))
def files_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TextToSpeech]:
    """Return an engine whose files lie in ``tmp_path``."""
    made = engine_with_files(request.param, tmp_path)
    yield made
    end(made)


def test_the_files_are_read_once(files_engine: TextToSpeech, tmp_path: Path):
    before = pcm(speak(files_engine, CLAUSE)[1])
    shutil.rmtree(tmp_path)
    assert before
    assert pcm(speak(files_engine, CLAUSE)[1]) == before


def test_calls_that_speak_at_the_same_time_get_what_each_alone_would_get(files_engine: TextToSpeech):
    texts = [CLAUSE, LONG, "The monthly fee is five dollars.", "One.", "Two fees here.", "Three of the fees."]
    alone = {text: pcm(speak(files_engine, text)[1]) for text in texts}
    assert at_once(lambda text: pcm(speak(files_engine, text)[1]), texts) == alone
