"""Pacing of partial transcripts for recognisers in which every partial costs a decoding.

Inputs: the cost of the last passes, and the number of speakers. Output: the duration of audio that the next
partial of a stream waits for. Counted in audio and not on a clock: an engine that catches up with a backlog
makes no more passes than one that keeps up. Pure; the engine that owns it serialises the calls.
"""

# Weight of a pass in the running mean: a single outlier does not predict the next pass.
NEWS_WEIGHT = 0.5


class PartialPace:
    """Pacing of the streams of one engine.

    Args:
        interval_ms: shortest audio between partials.
        longest_ms: longest audio between partials, however slow the passes are.
        load: share of the engine's time that partials may take, 0..1.
    """

    def __init__(self, interval_ms: int, longest_ms: int, load: float) -> None:
        self._interval_ms = interval_ms
        self._longest_ms = max(longest_ms, interval_ms)
        self._load = load
        self._pass_ms = 0.0

    def took(self, pass_ms: float) -> None:
        """Record the duration of a pass."""
        self._pass_ms += (pass_ms - self._pass_ms) * NEWS_WEIGHT

    def took_longer(self, more_ms: float) -> None:
        """Record that the last pass needed more time than was recorded for it."""
        self._pass_ms += more_ms * NEWS_WEIGHT

    def interval_ms(self, speakers: int) -> int:
        """Return the duration of audio that a stream's next partial waits for, with this number of
        speakers.
        """
        affordable_ms = int(self._pass_ms * max(speakers, 1) / self._load)
        return min(max(self._interval_ms, affordable_ms), self._longest_ms)
