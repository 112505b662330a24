import json
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError, EngineError
from parley.models.tts import TTS, SpeechPiece

pytest.importorskip("piper", reason="needs the extra 'piper'")
pytest.importorskip("onnx", reason="builds the tiny model files")

from parley.models.tts.piper import PiperSettings, PiperTts
from tests.speaking import pcm, speak
from tests.tiny_voices import PIPER_VOICE, write_piper

CLAUSE = "The monthly fee is five dollars."


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_piper(folder)
    return folder


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> PiperTts:
    return PiperTts(PiperSettings(models_dir=models_dir))


@pytest.mark.parametrize("rate_hz", [16_000, 22_050])
def test_the_rate_is_the_voices_own(tmp_path: Path, rate_hz: int):
    write_piper(tmp_path, rate_hz=rate_hz)
    engine = PiperTts(PiperSettings(models_dir=tmp_path))
    assert engine.rate_hz == rate_hz
    assert max(len(piece.pcm) for piece in speak(engine, CLAUSE)) == 40 * rate_hz // 1000 * 2


def test_a_sink_that_says_no_gets_nothing_more(engine: PiperTts):
    taken: list[SpeechPiece] = []
    assert engine.synthesize(CLAUSE, lambda piece: taken.append(piece) or len(taken) < 3) is False
    assert len(taken) == 3
    assert len(pcm(taken)) < len(pcm(speak(engine, CLAUSE))) / 2


def test_every_voice_comes_at_the_same_level(engine: PiperTts):
    # The network's own peak is 0.5.
    peak = np.abs(np.frombuffer(pcm(speak(engine, CLAUSE)), dtype="<i2").astype(int)).max()
    assert peak == pytest.approx(0.89 * 32_768, rel=0.02)


def test_times_are_exact_where_the_voice_reports_durations_and_marked_where_not(
    engine: PiperTts, tmp_path: Path
):
    write_piper(tmp_path, durations=True)
    exact = PiperTts(PiperSettings(models_dir=tmp_path))
    measured, estimated = (
        [word for piece in speak(voice, CLAUSE) for word in piece.words] for voice in (exact, engine)
    )
    assert not any(word.estimated for word in measured)
    assert all(word.estimated for word in estimated)
    rate = exact.rate_hz
    sound = np.abs(np.frombuffer(pcm(speak(exact, CLAUSE)), dtype="<i2").astype(int))
    for word, after in zip(measured, measured[1:], strict=False):
        # The tiny voice is silent between words, except for the padding after a phoneme, which counts to it.
        assert sound[word.start_ms * rate // 1000 : (word.start_ms + 10) * rate // 1000].max() > 5_000
        assert not sound[word.end_ms * rate // 1000 : (after.start_ms - 1) * rate // 1000].any()


def test_a_higher_speed_is_shorter(engine: PiperTts, models_dir: Path):
    fast = PiperTts(PiperSettings(models_dir=models_dir, speed=2.0))
    assert len(pcm(speak(fast, CLAUSE))) < 0.7 * len(pcm(speak(engine, CLAUSE)))


def test_a_speaker_is_chosen_by_name_and_an_unknown_one_lists_the_known_ones(tmp_path: Path):
    write_piper(tmp_path, speakers=("anna", "ben"))
    spoken = [
        pcm(speak(PiperTts(PiperSettings(models_dir=tmp_path, speaker=speaker)), CLAUSE))
        for speaker in (None, "anna", "ben")
    ]
    assert spoken[0] == spoken[1] != spoken[2]
    with pytest.raises(ConfigError, match="no speaker 'carl'") as caught:
        PiperTts(PiperSettings(models_dir=tmp_path, speaker="carl"))
    assert caught.value.known == ("anna", "ben")


def test_missing_files_say_make_models(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"lessac-medium.onnx, which does not exist: .*models ARGS=piper"):
        PiperTts(PiperSettings(models_dir=tmp_path))
    (write_piper(tmp_path) / f"{PIPER_VOICE}.onnx.json").unlink()
    with pytest.raises(ConfigError, match=r"medium.onnx.json, which does not exist: .*models ARGS=piper"):
        TTS.create("piper", PiperSettings(models_dir=tmp_path))


def test_an_unknown_voice_lists_those_that_are_there(tmp_path: Path):
    write_piper(tmp_path)
    write_piper(tmp_path, voice="de_DE-thorsten-low")
    with pytest.raises(ConfigError, match="no voice 'hal'") as caught:
        PiperSettings(models_dir=tmp_path, voice="hal").check()
    assert caught.value.known == ("de_DE-thorsten-low", PIPER_VOICE)


def test_a_voice_is_a_name_and_not_a_path():
    with pytest.raises(ValueError, match="file name without its suffix"):
        PiperSettings(voice="../../etc/passwd")


def test_an_accelerator_that_is_not_there_is_found_before_the_first_call(models_dir: Path):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has it")
    with pytest.raises(ConfigError, match="onnxruntime-gpu"):
        PiperSettings(models_dir=models_dir, use_cuda=True).check()


@pytest.mark.parametrize("suffix", [".onnx", ".onnx.json"])
def test_a_broken_file_is_named(tmp_path: Path, suffix: str):
    (write_piper(tmp_path) / f"{PIPER_VOICE}{suffix}").write_bytes(b"<html>not found</html>")
    with pytest.raises(EngineError, match=f"{PIPER_VOICE}{suffix}") as caught:
        PiperTts(PiperSettings(models_dir=tmp_path))
    assert not caught.value.retryable


def test_a_voice_that_would_fetch_its_front_end_is_refused(tmp_path: Path):
    write_piper(tmp_path, phoneme_type="pinyin")
    with pytest.raises(ConfigError, match="pinyin"):
        PiperTts(PiperSettings(models_dir=tmp_path))


def test_an_unknown_espeak_voice_is_found_when_it_is_loaded(tmp_path: Path):
    path = write_piper(tmp_path) / f"{PIPER_VOICE}.onnx.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "espeak": {"voice": "xx-yy"}}))
    with pytest.raises(EngineError, match="phonemes failed"):
        PiperTts(PiperSettings(models_dir=tmp_path))
