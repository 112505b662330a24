import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError, EngineError
from parley.models.tts import TTS, SpeechPiece

pytest.importorskip("kokoro_onnx", reason="needs the extra 'kokoro'")
pytest.importorskip("onnx", reason="builds the tiny model files")

from parley.models.tts.kokoro import KokoroSettings, KokoroTts
from tests.speaking import pcm, speak
from tests.tiny_voices import KOKORO_VOICES, write_kokoro

CLAUSE = "The monthly fee is five dollars."
# Fills two windows, split at the comma.
LONG = "The monthly fee is five dollars and fifty cents, and you can cancel it whenever you want to."


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_kokoro(folder)
    return folder


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> KokoroTts:
    return KokoroTts(KokoroSettings(models_dir=models_dir))


def test_the_rate_is_kokoros_and_no_piece_is_longer_than_forty_milliseconds(engine: KokoroTts):
    assert engine.rate_hz == 24_000
    assert max(len(piece.pcm) for piece in speak(engine, CLAUSE)) == 40 * 24 * 2


def test_the_threads_of_a_run_are_bounded(models_dir: Path):
    engine = KokoroTts(KokoroSettings(models_dir=models_dir, threads=1))
    options = engine._kokoro.sess.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)


def test_the_first_window_leaves_before_the_second_is_made(models_dir: Path):
    runs: list[str] = []

    class Watched(KokoroTts):
        def _infer(self, phonemes):
            runs.append("".join(phonemes))
            return super()._infer(phonemes)

    engine = Watched(KokoroSettings(models_dir=models_dir))
    runs.clear()
    assert engine.synthesize(LONG, lambda _piece: False) is False
    assert len(runs) == 1 and runs[0].endswith(",")
    speak(engine, LONG)
    assert len(runs) == 3


def test_a_sink_that_says_no_gets_nothing_more(engine: KokoroTts):
    taken: list[SpeechPiece] = []
    assert engine.synthesize(CLAUSE, lambda piece: taken.append(piece) or len(taken) < 3) is False
    assert len(pcm(taken)) <= 3 * 40 * 24 * 2 < len(pcm(speak(engine, CLAUSE)))


def test_times_are_exact_where_the_model_reports_durations_and_marked_where_not(
    engine: KokoroTts, tmp_path: Path
):
    write_kokoro(tmp_path, durations=True)
    exact = KokoroTts(KokoroSettings(models_dir=tmp_path))
    measured, estimated = (
        [word for piece in speak(voice, CLAUSE) for word in piece.words] for voice in (exact, engine)
    )
    assert not any(word.estimated for word in measured)
    assert all(word.estimated for word in estimated)
    # The tiny model is silent between words: a word is a tone from end to end.
    sound = np.abs(np.frombuffer(pcm(speak(exact, CLAUSE)), dtype="<i2").astype(int))
    levels = [sound[word.start_ms * 24 + 24 : word.end_ms * 24 - 24] for word in measured]
    assert all(np.median(level) > 5_000 for level in levels)
    gaps = zip(measured, measured[1:], strict=False)
    assert all(not sound[a.end_ms * 24 + 48 : b.start_ms * 24 - 24].any() for a, b in gaps)
    assert all(abs(a.start_ms - b.start_ms) < 250 for a, b in zip(measured, estimated, strict=True))


def test_a_higher_speed_is_shorter_and_another_voice_sounds_otherwise(engine: KokoroTts, models_dir: Path):
    fast = KokoroTts(KokoroSettings(models_dir=models_dir, speed=2.0))
    assert len(pcm(speak(fast, CLAUSE))) < 0.7 * len(pcm(speak(engine, CLAUSE)))
    other = KokoroTts(KokoroSettings(models_dir=models_dir, voice="bm_george", language="en-GB"))
    assert pcm(speak(other, CLAUSE)) != pcm(speak(engine, CLAUSE))


def test_other_languages_are_spoken_without_the_names_of_languages(models_dir: Path):
    spanish = KokoroTts(KokoroSettings(models_dir=models_dir, language="es-MX"))
    words = [word.text for piece in speak(spanish, "¿Qué tal? Hola.") for word in piece.words]
    assert words == ["¿Qué", "tal?", "Hola."]
    french = KokoroTts(KokoroSettings(models_dir=models_dir, language="fr"))
    # espeak-ng reads the word as English and marks that in its phonemes: "(en)", "(fr)".
    assert "(" not in french._phonemize("un computer")


def test_a_model_that_makes_silence_says_nothing(tmp_path: Path):
    write_kokoro(tmp_path, silent=True)
    assert speak(KokoroTts(KokoroSettings(models_dir=tmp_path)), CLAUSE) == []


def test_espeak_speaks_in_the_same_process_afterwards(models_dir: Path):
    code = (
        "import sys\n"
        "from parley.models.tts.kokoro import KokoroSettings, KokoroTts\n"
        "from parley.models.tts.espeak import EspeakTts\n"
        "voices = [KokoroTts(KokoroSettings(models_dir=sys.argv[1])), EspeakTts()]\n"
        "pieces = [0, 0]\n"
        "for i in (0, 1, 0, 1):\n"
        "    assert voices[i].synthesize('Hello.', lambda piece: bool(piece.pcm))\n"
        "    voices[i].synthesize('Hello.', lambda piece: pieces.__setitem__(i, pieces[i] + 1) is None)\n"
        "assert all(pieces), pieces\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(models_dir)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_missing_files_say_make_models(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"kokoro-v1.0.onnx, which does not exist: .*models ARGS=kokoro"):
        KokoroTts(KokoroSettings(models_dir=tmp_path))
    (write_kokoro(tmp_path) / "voices-v1.0.bin").unlink()
    with pytest.raises(ConfigError, match=r"voices-v1.0.bin, which does not exist: .*models ARGS=kokoro"):
        TTS.create("kokoro", KokoroSettings(models_dir=tmp_path))


def test_an_unknown_voice_lists_the_known_ones(models_dir: Path):
    with pytest.raises(ConfigError, match="no voice 'hal'") as caught:
        KokoroTts(KokoroSettings(models_dir=models_dir, voice="hal"))
    assert caught.value.known == KOKORO_VOICES


@pytest.mark.parametrize("name", ["kokoro-v1.0.onnx", "voices-v1.0.bin"])
def test_a_broken_file_is_named(tmp_path: Path, name: str):
    (write_kokoro(tmp_path) / name).write_bytes(b"<html>not found</html>")
    with pytest.raises(EngineError, match=name) as caught:
        KokoroTts(KokoroSettings(models_dir=tmp_path))
    assert not caught.value.retryable


def test_a_network_that_is_not_kokoros_is_found_when_it_is_loaded(tmp_path: Path):
    pytest.importorskip("piper", reason="lends its network")
    from tests.tiny_voices import write_piper

    model = write_kokoro(tmp_path) / "kokoro-v1.0.onnx"
    shutil.copy(write_piper(tmp_path) / "en_US-lessac-medium.onnx", model)
    with pytest.raises(EngineError):
        KokoroTts(KokoroSettings(models_dir=tmp_path))


def test_a_failure_says_what_failed_and_not_what_was_to_be_said(models_dir: Path):
    engine = KokoroTts(KokoroSettings(models_dir=models_dir))
    engine._style = np.zeros((3, 3), dtype=np.float32)
    with pytest.raises(EngineError, match="synthesis failed") as caught:
        speak(engine, "My secret number.")
    assert caught.value.engine == "kokoro"
    assert "secret" not in str(caught.value)


def test_a_language_without_voices_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no voice speaks 'de-DE' .known: en, "):
        KokoroSettings(language="de-DE")
    with pytest.raises(ValueError, match="Extra inputs"):
        KokoroSettings.model_validate({"colour": "red"})
    with pytest.raises(ValueError, match="shortest_window"):
        KokoroSettings(shortest_window=100, longest_window=50)


def test_the_registry_alone_imports_neither_package():
    code = "import parley.models.tts, sys; print(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'parley'" in done.stdout
    assert "'kokoro_onnx'" not in done.stdout and "'piper'" not in done.stdout
