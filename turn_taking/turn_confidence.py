"""Confidence with which a turn of the caller was recognised: the mean of its words. Pure."""

import statistics
from collections.abc import Sequence


class TurnConfidence:
    """Confidence of the words since the last turn."""

    def __init__(self) -> None:
        self._confidences: list[float] = []

    def on_words(self, confidences: Sequence[float] | None) -> None:
        """Add final words, with 0..1 for each; None when the recogniser does not report them."""
        self._confidences.extend(confidences or ())

    def forget(self) -> None:
        """Discard the words since the last turn, which were not meant."""
        self._confidences = []

    def take(self) -> float | None:
        """Return the confidence of the turn that is over; None when it is not known, as for typed words."""
        found, self._confidences = self._confidences, []
        return statistics.fmean(found) if found else None
