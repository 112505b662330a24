"""Specialists of the voice for tests, loaded in a child process by their target."""

import time
from pathlib import Path

from parley.core.errors import EngineError
from parley.core.strict_model import StrictModel
from parley.core.timeline import DiarPayload, Source
from parley.models.specialists import Finding, VoiceStretch


class StrangeSettings(StrictModel):
    """Behaviour of the specialist.

    Attributes:
        fault: what it does at a stretch: "hang", "slow" or "fail".
        once: it does so once in all of its lives; this file says that it has.
    """

    fault: str = ""
    once: Path | None = None


class StrangeSpecialist:
    """Names every speaker "speaker 1"; may hang, fail or take its time."""

    rate_hz = 16_000
    source = Source.DIAR

    def __init__(self, settings: StrangeSettings) -> None:
        self._settings = settings

    def open_stream(self) -> "StrangeSpecialist":
        return self

    def judge(self, stretch: VoiceStretch) -> tuple[Finding, ...]:
        once = self._settings.once
        if once is None or not once.exists():
            if once is not None:
                once.touch()
            if self._settings.fault == "hang":
                time.sleep(3_600)
            elif self._settings.fault == "slow":
                time.sleep(0.3)
            elif self._settings.fault == "fail":
                raise EngineError("no", engine="strange")
        return (Finding(1.0, speaker=DiarPayload(stretch.start_us, stretch.end_us, "speaker 1")),)

    def close(self) -> None:
        pass
