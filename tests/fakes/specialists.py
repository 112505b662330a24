"""Specialists for tests, loaded in a child process by their target."""

import time
from pathlib import Path

from parley.core.errors import EngineError
from parley.core.strict_model import StrictModel
from parley.core.timeline import DiarPayload, KnownVoice, Source, VisionPayload
from parley.models.specialists import CameraFrame, Finding, VoiceStretch


class StrangeSettings(StrictModel):
    """Behaviour of the specialist.

    Attributes:
        fault: what it does at a stretch or frame: "hang", "slow" or "fail"; "missing": it does not load.
        voiceprints: it has a voiceprint, whose seconds count the stretches and hundreds of known voices.
        once: it does so once in all of its lives; this file says that it has.
    """

    fault: str = ""
    voiceprints: bool = False
    once: Path | None = None


def misbehave(settings: StrangeSettings) -> None:
    """Do what the settings say."""
    once = settings.once
    if once is not None:
        if once.exists():
            return
        once.touch()
    if settings.fault == "hang":
        time.sleep(3_600)
    elif settings.fault == "slow":
        time.sleep(0.3)
    elif settings.fault == "fail":
        raise EngineError("no", engine="strange")


class StrangeSpecialist:
    """Names every speaker "speaker 1"; may hang, fail or take its time."""

    rate_hz = 16_000
    source = Source.DIAR

    def __init__(self, settings: StrangeSettings) -> None:
        self._settings = settings
        self._judged = 0

    def open_stream(self) -> "StrangeSpecialist":
        return self

    def judge(self, stretch: VoiceStretch) -> tuple[Finding, ...]:
        misbehave(self._settings)
        self._judged += 1
        seconds = float(self._judged + 100 * len(stretch.known))
        voice = KnownVoice("speaker 1", (1.0, 0.0), seconds) if self._settings.voiceprints else None
        payload = DiarPayload(stretch.start_us, stretch.end_us, "speaker 1")
        return (Finding(1.0, speaker=payload, voice=voice),)

    def close(self) -> None:
        pass


class StrangeWatcher:
    """Sees a hand that points up in a red picture and down in a blue one; may hang, fail or be slow."""

    source = Source.VISION

    def __init__(self, settings: StrangeSettings) -> None:
        if settings.fault == "missing":
            raise EngineError("its weights are not there", engine="strange", retryable=False)
        self._settings = settings

    def open_stream(self) -> "StrangeWatcher":
        return self

    def look(self, frame: CameraFrame) -> tuple[Finding, ...]:
        misbehave(self._settings)
        red, green, blue = frame.pixels.reshape(-1, 3).mean(axis=0)
        shown = "pointing up" if red > 2 * max(green, blue) else None
        shown = "pointing down" if blue > 2 * max(green, red) else shown
        seen = VisionPayload(frame.captured_us, frame.captured_us, gesture=shown, faces=1, looking="here")
        return (Finding(0.9, visual=seen),)

    def close(self) -> None:
        pass
