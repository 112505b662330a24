"""The scripted recogniser with a call that does not return and that signals when it has begun."""

import os
import time
from pathlib import Path

from parley.models.stt import Transcript
from tests.fakes.stt import ScriptedStream, ScriptedStt, ScriptedSttSettings

CALL_S = 60


class StuckSttSettings(ScriptedSttSettings):
    """Settings with the place where the call is signalled.

    Attributes:
        inside: a named pipe; the process id is written to it at the beginning of the call.
    """

    inside: Path


class StuckStt(ScriptedStt):
    """Engine that is shared by all streams."""

    def __init__(self, settings: StuckSttSettings) -> None:
        super().__init__(settings)
        self._chosen = settings

    def open_stream(self) -> "StuckStream":
        return StuckStream(self._chosen)


class StuckStream(ScriptedStream):
    """The stream of one caller."""

    def __init__(self, settings: StuckSttSettings) -> None:
        super().__init__(settings)
        self._inside = settings.inside

    def feed(self, pcm: bytes) -> Transcript | None:
        self._inside.write_text(f"{os.getpid()}\n")
        time.sleep(CALL_S)
        return super().feed(pcm)
