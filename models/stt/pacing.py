"""How often a recogniser says what it has understood so far, when every partial costs a decoding.

In: what the last passes cost, how many speak. Out: how much audio the next partial of a stream waits for.
Counted in audio and not on a clock: an engine that catches up with a backlog makes no more passes than one
that keeps up. Pure; the engine that owns it orders the calls.
"""

# A pass weighs this much in the running mean: one freak pass says little about the next.
NEWS_WEIGHT = 0.5


class PartialPace:
    """Paces the streams of one engine.

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
        """A pass was made."""
        self._pass_ms += (pass_ms - self._pass_ms) * NEWS_WEIGHT

    def interval_ms(self, speakers: int) -> int:
        """Audio that a stream's next partial waits for, while so many streams speak."""
        affordable_ms = int(self._pass_ms * max(speakers, 1) / self._load)
        return min(max(self._interval_ms, affordable_ms), self._longest_ms)
