"""Work of an engine per second of audio, averaged over the newest audio. Pure."""

# Audio after which older work counts half: a machine that is busy with other work is noticed within a
# sentence or two of each caller.
HALF_LIFE_MS = 10_000
# Less audio is not representative: the first pieces of a process are its slowest.
LEAST_MS = 300


class WorkRate:
    """Weighted mean of an engine's work, in which the newest audio counts most."""

    def __init__(self) -> None:
        self._audio_ms = 0.0
        self._work_ms = 0.0

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of work per second of audio; None before there is enough of it."""
        return self._work_ms / self._audio_ms if self._audio_ms >= LEAST_MS else None

    def took(self, audio_ms: float, work_ms: float) -> None:
        """Record a piece: the duration of its audio and the time that the engine worked on it.

        Work without audio (the search after the last word) is attributed to the audio before it.
        """
        kept = 0.5 ** (audio_ms / HALF_LIFE_MS)
        self._audio_ms = self._audio_ms * kept + audio_ms
        self._work_ms = self._work_ms * kept + work_ms
