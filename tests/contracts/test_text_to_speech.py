"""Contract of all speech synthesis engines, the fake included."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from parley.models.tts import TTS, SpeechPiece, TextToSpeech
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
# folder. Each is tested without and with the durations that some exports report.
MODEL_ENGINES: dict[str, tuple[str, Callable[[Path], TextToSpeech]]] = {
    "kokoro": ("kokoro_onnx", lambda folder: tiny_kokoro(folder, durations=False)),
    "kokoro-durations": ("kokoro_onnx", lambda folder: tiny_kokoro(folder, durations=True)),
    "kokoro-in-a-worker": ("kokoro_onnx", lambda folder: HostedTts(tiny_kokoro(folder, durations=True))),
    "piper": ("piper", lambda folder: tiny_piper(folder, durations=False)),
    "piper-durations": ("piper", lambda folder: tiny_piper(folder, durations=True)),
}
AUDIBLE = 164

CLAUSE = "The monthly fee is five dollars, and you can cancel."
# Fills two windows of Kokoro.
LONG = "The monthly fee is five dollars and fifty cents, and you can cancel it whenever you want to."
AWKWARD = '– "Your balance" is $1,250.50 at 3 p.m. & rising 🙂, e.g. see https://www.example.com/help !'


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


def speak(engine: TextToSpeech, text: str) -> tuple[bool, list[SpeechPiece]]:
    pieces: list[SpeechPiece] = []

    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece)
        return True

    return engine.synthesize(text, sink), pieces


def samples(pieces: list[SpeechPiece]) -> np.ndarray:
    return np.frombuffer(pcm(pieces), dtype="<i2").astype(int)


def words(pieces: list[SpeechPiece]) -> list[str]:
    return [word.text for piece in pieces for word in piece.words]


def test_the_registry_knows_the_engines():
    assert {"espeak", "flite", "kokoro", "piper"} <= set(TTS.names())
    assert TTS.create("flite").rate_hz == 16_000


def test_a_clause_is_spoken_in_several_pieces_of_whole_samples(engine):
    spoken, pieces = speak(engine, CLAUSE)
    assert spoken
    assert len(pieces) > 1
    assert all(len(piece.pcm) % 2 == 0 for piece in pieces)
    seconds = len(samples(pieces)) / engine.rate_hz
    assert 0.9 < seconds < 6


def test_the_level_is_audible_and_not_clipped(engine):
    peak = np.abs(samples(speak(engine, CLAUSE)[1])).max()
    assert 5_000 < peak < 32_700


@pytest.mark.parametrize("text", [CLAUSE, AWKWARD])
def test_the_words_are_those_of_the_text_each_once_in_order(engine, text):
    assert " ".join(words(speak(engine, text)[1])) == " ".join(text.split())


def test_word_times_follow_each_other_within_the_audio(engine):
    _, pieces = speak(engine, CLAUSE)
    times = [word for piece in pieces for word in piece.words]
    total_ms = len(samples(pieces)) * 1000 / engine.rate_hz
    assert times[0].start_ms < 60
    assert all(word.start_ms < word.end_ms for word in times)
    assert all(a.end_ms <= b.start_ms + 1 for a, b in zip(times, times[1:], strict=False))
    assert total_ms - 260 < times[-1].end_ms <= total_ms + 1


def test_a_word_is_reported_no_later_than_the_piece_in_which_it_ends(engine):
    _, pieces = speak(engine, CLAUSE)
    sent = 0
    for piece in pieces:
        sent_ms = sent * 1000 / engine.rate_hz
        assert all(word.end_ms >= sent_ms - 1 for word in piece.words)
        sent += len(piece.pcm) // 2


def test_speech_begins_within_twenty_milliseconds_of_the_first_sample(engine):
    audible = np.flatnonzero(np.abs(samples(speak(engine, CLAUSE)[1])) > AUDIBLE)
    assert audible[0] <= 0.020 * engine.rate_hz


def test_a_sink_that_says_no_stops_the_engine_at_once_and_the_next_clause_is_whole(engine):
    whole = len(samples(speak(engine, CLAUSE)[1]))
    taken: list[SpeechPiece] = []

    def sink(piece: SpeechPiece) -> bool:
        taken.append(piece)
        return len(taken) < 2

    assert engine.synthesize(CLAUSE, sink) is False
    assert len(taken) == 2
    assert len(samples(taken)) < whole / 2
    spoken, pieces = speak(engine, CLAUSE)
    assert spoken and words(pieces) == CLAUSE.split()


@pytest.mark.parametrize("text", ["", "   \n", "...", "🙂 – !", "()"])
def test_text_without_anything_to_pronounce_is_silence(engine, text):
    spoken, pieces = speak(engine, text)
    assert spoken
    assert not samples(pieces).any()


def test_what_the_sink_raises_reaches_the_caller_and_the_engine_lives(engine):
    def broken(piece: SpeechPiece) -> bool:
        raise ValueError("sink")

    with pytest.raises(ValueError, match="sink"):
        engine.synthesize(CLAUSE, broken)
    assert words(speak(engine, "Hello there.")[1]) == ["Hello", "there."]


def test_several_threads_speak_at_once_without_mixing(engine):
    texts = ["One fee.", "Two fees here.", "Three of the fees.", "Four."]
    results: dict[str, list[str]] = {}

    def run(text: str) -> None:
        for _ in range(3):
            results[text] = words(speak(engine, text)[1])

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == {text: text.split() for text in texts}


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
