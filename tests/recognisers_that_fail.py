"""Recogniser of a module of one's own that crashes or hangs on long audio; all other audio is "hello"."""

import os
import signal
import time

from parley.core.media import WordTime
from parley.core.strict_model import StrictModel
from parley.models.stt import Transcript

RATE_HZ = 16_000
LONG_BYTES = 3 * RATE_HZ * 2


class FailingSettings(StrictModel):
    hangs: bool = False


class FailingStt:
    rate_hz = RATE_HZ

    def __init__(self, settings: FailingSettings) -> None:
        self._hangs = settings.hangs

    def open_stream(self) -> "FailingStream":
        return FailingStream(self._hangs)


class FailingStream:
    def __init__(self, hangs: bool) -> None:
        self._hangs = hangs

    def start(self) -> None:
        pass

    def feed(self, pcm: bytes) -> None:
        if len(pcm) > LONG_BYTES:
            if not self._hangs:
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600)

    def finish(self) -> Transcript:
        return Transcript("hello", (WordTime("hello", 0, 100),), 1.0, final=True)

    def discard(self) -> None:
        pass

    def close(self) -> None:
        pass
