"""Give up a stage of a call by turns whose service cannot work any more, and which has no fallback.

Inputs: failures of the call's services, answers and turns, from the events of the call. Output:
``EnginesGivenUp``, once for a stage. A service is given up when it reports an error that will recur (a key
that is refused), and a language model also when it has answered ``MOST_FAILED_TURNS`` turns in a row with an
error: an apology without end is no conversation. Failures of a service that has a fallback do not come here,
apart from those of the fallback.
"""

from parley.core.call_events import EngineFailed, EnginesGivenUp, ResponseText, TextTyped, TurnEnded
from parley.core.errors import EngineError
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents
from parley.session_store.prompt import BY_DEPLOYMENT

# A provider that is overloaded answers again within a turn or two.
MOST_FAILED_TURNS = 3


class LostStages:
    """Subscriber to the failures of one call's services.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events
        self._given_up: set[Stage] = set()
        # Turns in a row that the model has failed with, and whether the present one is among them.
        self._failed_turns, self._is_counted = 0, False
        events.subscribe(EngineFailed, self._on_engine_failed)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(TurnEnded, self._on_turn)
        events.subscribe(TextTyped, self._on_turn)

    def _on_turn(self, event: TurnEnded | TextTyped) -> None:
        if event.text:
            self._is_counted = False

    def _on_response_text(self, event: ResponseText) -> None:
        # The apology of the deployment is no answer.
        if event.text.strip() and event.author != BY_DEPLOYMENT:
            self._failed_turns = 0

    def _on_engine_failed(self, event: EngineFailed) -> None:
        if event.stage is None:
            return
        if event.is_permanent:
            self._give_up(event, event.stage, "it will go on failing")
        if event.stage is Stage.LLM and not self._is_counted:
            self._is_counted = True
            self._failed_turns += 1
            if self._failed_turns >= MOST_FAILED_TURNS:
                self._give_up(event, Stage.LLM, f"it has failed with {self._failed_turns} turns in a row")

    def _give_up(self, event: EngineFailed, stage: Stage, why: str) -> None:
        if stage in self._given_up:
            return
        self._given_up.add(stage)
        error = EngineError(why, engine=stage.value)
        self._events.publish(EnginesGivenUp(event.at_ms, error, stage))
