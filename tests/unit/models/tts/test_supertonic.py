import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError, EngineError, ModelFileError
from parley.models.tts import TTS, SpeechPiece

pytest.importorskip("supertonic", reason="needs the extra 'supertonic'")
pytest.importorskip("onnx", reason="builds the tiny model files")

from parley.models.tts.supertonic import SupertonicSettings, SupertonicTts
from tests.speaking import pcm, speak
from tests.tiny_voices import SUPERTONIC_VOICES, write_supertonic

CLAUSE = "The monthly fee is five dollars."
# Fills two windows, split at the comma.
LONG = "The monthly fee is five dollars and fifty cents, and you can cancel it whenever you want to."
NETWORKS = ("duration_predictor.onnx", "text_encoder.onnx", "vector_estimator.onnx", "vocoder.onnx")


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_supertonic(folder)
    return folder


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> SupertonicTts:
    return SupertonicTts(SupertonicSettings(models_dir=models_dir))


def spoken(models_dir: Path, text: str = CLAUSE, **settings: object) -> bytes:
    chosen = SupertonicSettings.model_validate({"models_dir": models_dir, **settings})
    return pcm(speak(SupertonicTts(chosen), text))


def test_the_rate_is_the_models_and_no_piece_is_longer_than_forty_milliseconds(engine: SupertonicTts):
    assert engine.rate_hz == 44_100
    assert max(len(piece.pcm) for piece in speak(engine, CLAUSE)) == 40 * 441 // 10 * 2


def test_the_threads_of_a_run_are_bounded(models_dir: Path):
    model = SupertonicTts(SupertonicSettings(models_dir=models_dir, threads=1))._model
    for network in (model.dp_ort, model.text_enc_ort, model.vector_est_ort, model.vocoder_ort):
        options = network.get_session_options()
        assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)


def test_the_first_window_leaves_before_the_second_is_made(models_dir: Path):
    runs: list[str] = []

    class Watched(SupertonicTts):
        def _infer(self, phonemes):
            runs.append("".join(phonemes))
            return super()._infer(phonemes)

    engine = Watched(SupertonicSettings(models_dir=models_dir))
    runs.clear()
    assert engine.synthesize(LONG, lambda _piece: False) is False
    assert runs == ["The monthly fee is five dollars and fifty cents,"]
    runs.clear()
    speak(engine, LONG)
    assert "".join(runs) == LONG.replace(", ", ",")


def test_a_sink_that_says_no_gets_nothing_more(engine: SupertonicTts):
    taken: list[SpeechPiece] = []
    assert engine.synthesize(CLAUSE, lambda piece: taken.append(piece) or len(taken) < 3) is False
    assert len(taken) == 3
    assert len(pcm(taken)) < len(pcm(speak(engine, CLAUSE))) / 2


def test_the_times_of_words_are_estimated_and_fall_on_them(engine: SupertonicTts):
    pieces = speak(engine, CLAUSE)
    times = [word for piece in pieces for word in piece.words]
    assert [word.text for word in times] == CLAUSE.split()
    assert all(word.estimated for word in times)
    # The characters of the tiny voice last between 50 and 90 ms: the estimate is near the true place.
    total_ms = len(pcm(pieces)) / 2 / 44.1
    shares = np.cumsum([len(word) for word in CLAUSE.split()]) / len(CLAUSE.replace(" ", ""))
    assert np.abs(np.array([word.end_ms for word in times]) - shares * total_ms).max() < 300


def test_a_higher_speed_is_shorter(models_dir: Path):
    assert len(spoken(models_dir, speed=2.0)) < 0.7 * len(spoken(models_dir))
    assert len(spoken(models_dir, speed=0.7)) > 1.3 * len(spoken(models_dir))


def test_another_voice_sounds_otherwise_and_an_unknown_one_lists_the_known_ones(models_dir: Path):
    assert spoken(models_dir, voice="M1") != spoken(models_dir)
    with pytest.raises(ConfigError, match="no voice 'hal'") as caught:
        SupertonicSettings(models_dir=models_dir, voice="hal").check()
    assert caught.value.known == SUPERTONIC_VOICES


def test_the_vector_estimator_runs_as_often_as_steps_says(models_dir: Path):
    # The last step of the tiny estimator goes all of the way that is left, whatever their number.
    assert spoken(models_dir, steps=1) == spoken(models_dir, steps=5)
    engine = SupertonicTts(SupertonicSettings(models_dir=models_dir, steps=3))
    runs = []

    class Counted(type(engine._model.vector_est_ort)):  # type: ignore[misc]
        def run(self, names, inputs):
            runs.append((float(inputs["current_step"][0]), float(inputs["total_step"][0])))
            return super().run(names, inputs)

    path = models_dir / "supertonic" / "supertonic-3" / "onnx" / "vector_estimator.onnx"
    engine._model.vector_est_ort = Counted(str(path))
    speak(engine, "Hello.")
    assert runs == [(0.0, 3.0), (1.0, 3.0), (2.0, 3.0)]


def test_the_language_goes_with_the_text_except_to_the_first_model(models_dir: Path, tmp_path: Path):
    english, spanish = (spoken(models_dir, "Hola.", language=tag) for tag in ("en-GB", "es-MX"))
    assert english != spanish
    # The tiny voice pronounces the tokens of the language, which the first model does not have.
    write_supertonic(tmp_path, model="supertonic")
    assert len(spoken(tmp_path, "Hola.", model="supertonic")) < 0.7 * len(english)


@pytest.mark.parametrize(
    ("model", "language", "known"),
    [
        ("supertonic", "es", "en"),
        ("supertonic-2", "de-DE", "en, ko, es, pt, fr"),
        ("supertonic-3", "zh", "en, ko, ja"),
    ],
)
def test_a_language_that_the_model_does_not_speak_is_refused(model: str, language: str, known: str):
    with pytest.raises(ValueError, match=f"{model} does not speak '{language}' .known: {known}"):
        SupertonicSettings.model_validate({"model": model, "language": language})


def test_characters_that_the_model_does_not_know_are_left_out(engine: SupertonicTts):
    assert engine._phonemize("ab漢c") == "abc"
    # The package writes this apostrophe as one that the model knows, and takes accents off their letters.
    assert engine._phonemize("don’t café") == "don’t café"
    words = [word.text for piece in speak(engine, "He said 漢字 twice.") for word in piece.words]
    assert words == ["He", "said", "漢字", "twice."]
    assert speak(engine, "漢字") == []


def test_a_model_that_makes_silence_says_nothing(tmp_path: Path):
    write_supertonic(tmp_path, silent=True)
    assert speak(SupertonicTts(SupertonicSettings(models_dir=tmp_path)), CLAUSE) == []


FILES = [f"onnx/{name}" for name in (*NETWORKS, "tts.json", "unicode_indexer.json")]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_says_make_models(tmp_path: Path, name: str):
    (write_supertonic(tmp_path) / name).unlink()
    with pytest.raises(ModelFileError, match=rf"{name}, which does not exist: .*models ARGS=supertonic"):
        TTS.create("supertonic", SupertonicSettings(models_dir=tmp_path))


def test_missing_styles_say_make_models(tmp_path: Path):
    shutil.rmtree(write_supertonic(tmp_path) / "voice_styles")
    with pytest.raises(ModelFileError, match=r"F1.json, which does not exist: .*models ARGS=supertonic"):
        SupertonicSettings(models_dir=tmp_path).check()


@pytest.mark.parametrize("name", [*FILES, "voice_styles/F1.json"])
@pytest.mark.parametrize("content", [b"<html>not found</html>", b"{}"])
def test_an_altered_file_is_named(tmp_path: Path, name: str, content: bytes):
    (write_supertonic(tmp_path) / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"{name} as its makers publish it.*models ARGS=supertonic"):
        SupertonicTts(SupertonicSettings(models_dir=tmp_path))


def test_networks_in_each_others_place_are_found_when_they_are_loaded(tmp_path: Path):
    folder = write_supertonic(tmp_path) / "onnx"
    shutil.copy(folder / "vocoder.onnx", folder / "text_encoder.onnx")
    with pytest.raises(ModelFileError, match="text_encoder.onnx"):
        SupertonicTts(SupertonicSettings(models_dir=tmp_path))


def test_files_that_do_not_fit_together_are_found_when_they_are_loaded(tmp_path: Path):
    folder = write_supertonic(tmp_path)
    description = json.loads((folder / "onnx" / "tts.json").read_text())
    description["ttl"]["latent_dim"] = 5
    (folder / "onnx" / "tts.json").write_text(json.dumps(description))
    with pytest.raises(ModelFileError, match="supertonic-3 as its makers publish it"):
        SupertonicTts(SupertonicSettings(models_dir=tmp_path))


def test_a_failure_says_what_failed_and_not_what_was_to_be_said(models_dir: Path):
    engine = SupertonicTts(SupertonicSettings(models_dir=models_dir))
    engine._style.ttl = np.zeros((3, 3), dtype=np.float32)
    with pytest.raises(EngineError, match="synthesis failed") as caught:
        speak(engine, "My secret number.")
    assert caught.value.engine == "supertonic"
    assert "secret" not in str(caught.value)


def test_settings_out_of_range_are_refused():
    for settings in ({"voice": "../../etc/passwd"}, {"speed": 0.5}, {"steps": 0}, {"model": "supertonic-9"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            SupertonicSettings.model_validate(settings)
