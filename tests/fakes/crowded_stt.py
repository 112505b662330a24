"""The scripted recogniser with a limited number of seats; an utterance holds one from start to end."""

from pydantic import Field

from parley.core.errors import EngineError
from parley.models.stt import Transcript
from tests.fakes.stt import ScriptedStream, ScriptedStt, ScriptedSttSettings


class CrowdedSttSettings(ScriptedSttSettings):
    """Settings with the number of streams that may hold a decoder at the same time."""

    seats: int = Field(default=1, ge=0)


class CrowdedStt(ScriptedStt):
    """Engine that is shared by all streams; ``seats`` may be changed at any time."""

    def __init__(self, settings: CrowdedSttSettings | None = None) -> None:
        self._chosen = settings or CrowdedSttSettings()
        super().__init__(self._chosen)
        self.seats = self._chosen.seats
        self.refusals = 0

    def open_stream(self) -> "CrowdedStream":
        return CrowdedStream(self, self._chosen)


class CrowdedStream(ScriptedStream):
    """The stream of one caller."""

    def __init__(self, engine: CrowdedStt, settings: CrowdedSttSettings) -> None:
        super().__init__(settings)
        self._engine = engine
        self._seated = False

    def start(self) -> None:
        self._rise()
        if self._engine.seats <= 0:
            self._engine.refusals += 1
            raise EngineError("every seat is taken", engine="crowded")
        self._engine.seats -= 1
        self._seated = True
        super().start()

    def finish(self) -> Transcript:
        self._rise()
        return super().finish()

    def discard(self) -> None:
        self._rise()
        super().discard()

    def close(self) -> None:
        self._rise()
        super().close()

    def _rise(self) -> None:
        self._engine.seats += self._seated
        self._seated = False
