"""Scripted early looks: a recogniser's stream that answers questions with given odds, at no cost."""

from collections.abc import Sequence

from parley.core.errors import EngineError
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage
from tests.fakes.stt import ScriptedStream, ScriptedStt


class ScriptedLooks(ScriptedStt):
    """Recogniser with scripted early looks, shared by all streams.

    Args:
        odds: log odds that each look returns.
        fail_after: number of questions that are answered before one fails; None answers all.

    Attributes:
        asked: the position of each requested look, and the bytes of its audio.
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
