"""Early looks from a script: a recogniser's stream that answers questions with given odds. Costs nothing."""

from collections.abc import Sequence

from core.errors import EngineError
from runtime.engine_host import Answer
from runtime.engine_hosting.messages import EngineMessage
from tests.fakes.stt import ScriptedStream, ScriptedStt


class ScriptedLooks(ScriptedStt):
    """Shared by all streams.

    Args:
        odds: of each look.
        fail_after: questions that are answered before one fails; None for all.

    Attributes:
        asked: the place of each look that was asked for, and the bytes of its audio.
    """

    def __init__(self, odds: Sequence[float], *, fail_after: int | None = None) -> None:
        super().__init__()
        self.odds, self.fail_after = tuple(odds), fail_after
        self.asked: list[tuple[int, int]] = []

    def open_stream(self) -> "_LookedStream":
        return _LookedStream(self)


class _LookedStream(ScriptedStream):
    def __init__(self, engine: ScriptedLooks) -> None:
        super().__init__(engine._settings)
        self._engine = engine

    def ask(self, question: EngineMessage) -> Answer:
        engine = self._engine
        if engine.fail_after is not None and len(engine.asked) >= engine.fail_after:
            engine.fail_after = None
            raise EngineError("scripted failure", engine="scripted")
        look = question.facts["look"]
        engine.asked.append((look, len(question.payload)))
        return {"log_odds": engine.odds[look]}, b""
