from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import EngineError, ShapeError
from parley.core.media import float_to_pcm16
from parley.core.pinned_models import PINNED_MODELS
from parley.models.stt.looks import (
    BEFORE_MS,
    FEATURES,
    LINES_FILE,
    LOOKS_MS,
    STATE_MS,
    STATE_SIZE,
    LookJudge,
    ask_look,
    features,
    look_samples,
    read_look,
)
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType


class LevelEncoder:
    """Encoder whose states are the mean magnitude of their audio."""

    sha256 = "an encoder"

    def encode(self, samples: np.ndarray) -> np.ndarray:
        size = 16 * STATE_MS
        levels = np.abs(samples[: len(samples) // size * size]).reshape(-1, size).mean(axis=1)
        return np.repeat(levels[:, None], STATE_SIZE, axis=1).astype(np.float32)


def lines(path: Path, **other: object) -> Path:
    kept = {
        "weights": np.full((len(LOOKS_MS), FEATURES), 1 / FEATURES, np.float16),
        "bias": np.arange(len(LOOKS_MS), dtype=np.float32),
        "network": LevelEncoder.sha256,
    }
    np.savez(path, **(kept | other))  # type: ignore[arg-type]
    return path


def voice(look: int, level: float = 0.5) -> np.ndarray:
    return np.concatenate(
        (np.zeros(16 * BEFORE_MS, np.float32), np.full(16 * LOOKS_MS[look], level, np.float32))
    )


@pytest.mark.parametrize("look", range(len(LOOKS_MS)))
def test_a_look_hears_the_voice_and_not_what_was_before_it(look: int):
    heard = features(LevelEncoder(), voice(look), look)
    assert heard.shape == (FEATURES,) and heard.dtype == np.float32
    # A state at the border contains some of both.
    assert heard[STATE_SIZE:] == pytest.approx(np.full(2 * STATE_SIZE, 0.5), abs=1e-6)
    assert look_samples(look) == len(voice(look))


@pytest.mark.parametrize("look", [0, len(LOOKS_MS) - 1])
def test_a_question_and_its_answer_cross_a_process_as_they_were(look: int, tmp_path: Path):
    judge = LookJudge(LevelEncoder(), lines(tmp_path / "lines.npz"))
    facts, payload = judge.answer(ask_look(float_to_pcm16(voice(look)), look))
    answer = EngineMessage(MessageType.DONE, 1, facts, payload)
    assert read_look(answer) == pytest.approx(judge.log_odds(voice(look), look), abs=1e-3)
    assert read_look(answer) == pytest.approx(0.5 + look, abs=0.1)


@pytest.mark.parametrize(("look", "pcm"), [(None, b"\0\0"), (0, b""), (0, b"\1"), (255, bytes(320))], ids=str)
def test_what_is_no_question_is_refused(look: int | None, pcm: bytes, tmp_path: Path):
    question = EngineMessage(MessageType.MEASURE, facts={"look": look}, payload=pcm)
    with pytest.raises(ShapeError):
        LookJudge(LevelEncoder(), lines(tmp_path / "lines.npz")).answer(question)


def test_what_is_no_answer_is_refused():
    with pytest.raises(EngineError, match="no log odds"):
        read_look(EngineMessage(MessageType.DONE, 1, {"log_odds": "high"}))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"network": "another"}, "for another encoder"),
        ({"weights": np.zeros((1, 3), np.float16)}, "other looks"),
        ({"bias": np.zeros(1, np.float32)}, "other looks"),
    ],
)
def test_lines_of_something_else_are_refused(other: dict[str, object], said: str, tmp_path: Path):
    with pytest.raises(EngineError, match=said):
        LookJudge(LevelEncoder(), lines(tmp_path / "lines.npz", **other))


def test_a_file_that_is_none_is_refused(tmp_path: Path):
    (tmp_path / "lines.npz").write_bytes(b"no archive")
    with pytest.raises(EngineError, match="does not load"):
        LookJudge(LevelEncoder(), tmp_path / "lines.npz")


def test_the_lines_that_ship_belong_to_the_encoder_that_is_pinned():
    encoder = LevelEncoder()
    encoder.sha256 = PINNED_MODELS["moonshine_tiny"].sha256["encoder_model.ort"]
    judge = LookJudge(encoder)
    assert all(np.isfinite(judge.log_odds(voice(look), look)) for look in range(len(LOOKS_MS)))
    assert LINES_FILE.stat().st_size < 20_000
