"""Contract of turn completeness models (``models.turn``)."""

import threading

import numpy as np
import pytest

from parley.contracts.speech import say, silence
from parley.core.errors import ShapeError
from parley.core.media import pcm16_to_float
from parley.models.turn import TurnCompleteness, TurnEstimate


def turn(text: str = "how do i block a lost card") -> np.ndarray:
    """Return a spoken turn, float32 at 16 kHz."""
    return pcm16_to_float(say(text) + silence(200))


class TurnCompletenessContract:
    """Tests of a model; needs a fixture ``model``."""

    @pytest.mark.parametrize("samples", [0, 1, 160, 16_000])
    def test_any_length_has_a_probability(self, model: TurnCompleteness, samples: int) -> None:
        assert 0.0 <= model.estimate(turn()[:samples]).complete <= 1.0

    def test_a_long_turn_is_cut_from_the_front(self, model: TurnCompleteness) -> None:
        long = np.tile(turn(), 6)
        assert len(long) > model.max_samples
        assert model.estimate(long) == model.estimate(long[-model.max_samples :])

    def test_audio_of_another_shape_is_refused(self, model: TurnCompleteness) -> None:
        with pytest.raises(ShapeError):
            model.estimate(np.zeros((1, 16_000), dtype=np.float32))

    def test_the_input_is_not_changed(self, model: TurnCompleteness) -> None:
        audio = turn()
        before = audio.copy()
        model.estimate(audio)
        assert np.array_equal(audio, before)

    def test_calls_may_overlap(self, model: TurnCompleteness) -> None:
        audio = turn()
        alone = model.estimate(audio)
        heard: list[TurnEstimate] = []
        threads = [threading.Thread(target=lambda: heard.append(model.estimate(audio))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard == [alone] * 3
