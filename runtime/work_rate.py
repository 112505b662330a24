"""Work of an engine for a second of audio, over the newest audio. Pure."""

# Older work counts half whenever so much audio was taken since: a machine that is busy with other things is
# noticed within a sentence or two of each caller.
HALF_LIFE_MS = 10_000
# Less audio says little: the first pieces of a process are its slowest.
LEAST_MS = 300


class WorkRate:
    """Mean of an engine's work, the newest audio counting most."""

    def __init__(self) -> None:
        self._audio_ms = 0.0
        self._work_ms = 0.0

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of work for a second of audio; None before there is enough of it."""
        return self._work_ms / self._audio_ms if self._audio_ms >= LEAST_MS else None

    def took(self, audio_ms: float, work_ms: float) -> None:
        """Record a piece: how much audio it held and how long the engine worked on it.

        Work without audio (the search after the last word) belongs to the audio before it.
        """
        kept = 0.5 ** (audio_ms / HALF_LIFE_MS)
        self._audio_ms = self._audio_ms * kept + audio_ms
        self._work_ms = self._work_ms * kept + work_ms
