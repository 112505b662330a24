"""The scripted recogniser with a call that does not come back, and that says when it is inside."""

import os
import time
from pathlib import Path

from models.stt import Transcript
from tests.fakes.stt import ScriptedStream, ScriptedStt, ScriptedSttSettings

CALL_S = 60


class StuckSttSettings(ScriptedSttSettings):
    """Where it says so.

    Attributes:
        inside: a named pipe; the process id is written to it at the beginning of the call.
    """

    inside: Path


class StuckStt(ScriptedStt):
    """Shared by all streams."""

    def __init__(self, settings: StuckSttSettings) -> None:
        super().__init__(settings)
        self._chosen = settings

    def open_stream(self) -> "StuckStream":
        return StuckStream(self._chosen)


class StuckStream(ScriptedStream):
    """One caller."""

    def __init__(self, settings: StuckSttSettings) -> None:
        super().__init__(settings)
        self._inside = settings.inside

    def feed(self, pcm: bytes) -> Transcript | None:
        self._inside.write_text(f"{os.getpid()}\n")
        time.sleep(CALL_S)
        return super().feed(pcm)
