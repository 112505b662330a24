"""Price the use of engines in a call, turn by turn, and record it in the session.

Input: ``EngineUsed`` and the bot's speech, from the events of the call. Output: ``TurnPriced`` when a turn of
the bot is over, and at the end of the call for what came after the last one; with prices in the deployment,
an event of the session for each, and one with the sum at the end. A report that comes after the end of its
turn (the answer to a guess that was withdrawn) counts in the next one. Where there are prices, a response of
the model without a report of its tokens, such as one that was interrupted, is counted as an unreported
request when the next turn is over: its cost is not known. None of the writes is awaited.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from parley.core.call_events import (
    BotTurnEnded,
    EngineFailedOver,
    EngineUsed,
    ResponseStarted,
    SpeechMade,
    TextTyped,
    TurnEnded,
    TurnPriced,
    TurnTranscribed,
)
from parley.core.usage import PricedUsage, Stage, Usage
from parley.pipelines.call import Call
from parley.session_store.events import Kind
from parley.telemetry.engine_names import REALTIME_SECTION, STAGE_OF_SECTION
from parley.telemetry.prices import PriceTable, shown

# Models of a call; a further one counts with the last. A deployment has three, and their fallbacks.
MOST_MODELS = 32
# Stage, engine, model.
Key = tuple[Stage, str, str]


class UsageRecords:
    """Use of engines in one call.

    Args:
        call: the call.
        prices: prices of the process.
        engines: name of the present engine of each stage.
    """

    def __init__(self, call: Call, prices: PriceTable, engines: Mapping[Stage, str]) -> None:
        self._call, self._prices, self._engines = call, prices, engines
        self._used: dict[Key, Usage] = {}
        self._total: dict[Key, PricedUsage] = {}
        self._turn = 0
        # Responses of the model that no report has followed, and those of before the present turn.
        self._unreported = self._overdue = 0
        # Of the voice that speaks, and its speech that is not in the use yet.
        self._voice: Key = Stage.TTS, engines[Stage.TTS], ""
        self._spoken_ms = 0.0
        # That answered last.
        self._model: Key = Stage.LLM, engines[Stage.LLM], ""
        events = call.events
        events.subscribe(EngineUsed, self._on_engine_used)
        # One service that hears and speaks bills both by its tokens.
        if engines[Stage.STT] != engines[Stage.LLM]:
            events.subscribe(SpeechMade, self._on_speech_made)
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(TextTyped, self._on_turn)
        events.subscribe(TurnEnded, self._on_turn)
        events.subscribe(TurnTranscribed, self._on_turn)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)

    def finish(self) -> None:
        """Price what is left, and record the sum: the call is over."""
        self._overdue = max(0, self._unreported)
        self._price_turn()
        if self._total:
            self._record("call", self._total.values())

    def _on_engine_used(self, event: EngineUsed) -> None:
        key = event.stage, self._engines[event.stage], event.model
        if event.stage is Stage.TTS:
            if key != self._voice:
                self._take_speech()
            self._voice = key
        elif event.stage is Stage.LLM:
            self._model = key
        if event.stage is Stage.LLM and not event.is_out_of_band:
            # The report of a guess comes before its response, which is held until the turn is over.
            self._unreported = max(-1, self._unreported - 1)
            self._overdue = min(self._overdue, max(0, self._unreported))
        self._add(key, event.usage)

    def _on_speech_made(self, event: SpeechMade) -> None:
        # A few dozen times a second: added up without an object for each.
        self._spoken_ms += event.audio_ms

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        if STAGE_OF_SECTION.get(event.stage) is Stage.TTS:
            self._take_speech()
            self._voice = Stage.TTS, event.successor, ""
        elif event.stage == REALTIME_SECTION:
            # Its cascade bills each stage on its own.
            self._call.events.subscribe(SpeechMade, self._on_speech_made)

    def _take_speech(self) -> None:
        """Add the speech so far to the use of the voice that has made it."""
        if self._spoken_ms:
            self._add(self._voice, Usage(spoken_ms=self._spoken_ms))
            self._spoken_ms = 0.0

    def _on_response_started(self, _event: ResponseStarted) -> None:
        self._unreported += 1

    def _add(self, key: Key, usage: Usage) -> None:
        if key not in self._used and len(self._used) >= MOST_MODELS:
            key = next(reversed(self._used))
        self._used[key] = self._used.get(key, Usage()) + usage

    def _on_turn(self, event: TextTyped | TurnEnded | TurnTranscribed) -> None:
        self._turn += bool(event.text)

    def _on_bot_turn_ended(self, _event: BotTurnEnded) -> None:
        self._price_turn()

    def _price_turn(self) -> None:
        self._take_speech()
        if self._overdue and self._prices.settings is not None:
            self._add(self._model, Usage(unreported_requests=self._overdue))
            self._unreported -= self._overdue
        # A report that is left was that of a guess that was withdrawn.
        self._overdue = self._unreported = max(0, self._unreported)
        used, self._used = self._used, {}
        priced = tuple(
            self._prices.priced(stage, engine, model, usage)
            for (stage, engine, model), usage in used.items()
            if usage.amounts()
        )
        if not priced:
            return
        for each in priced:
            key = each.stage, each.engine, each.model
            if key not in self._total and len(self._total) >= MOST_MODELS:
                key = next(reversed(self._total))
            self._total[key] = _sum(self._total.get(key), each)
        events = self._call.events
        events.publish(TurnPriced(events.now_ms(), self._turn, priced))
        self._record("turn", priced)

    def _record(self, scope: str, used: Iterable[PricedUsage]) -> None:
        settings = self._prices.settings
        if settings is None or not settings.in_session:
            return
        payload = usage_payload(used, settings.currency)
        payload |= {"scope": scope, "call_id": self._call.call_id, "turn": self._turn}
        conversation = self._call.conversation
        conversation.record(conversation.draft(Kind.USAGE, "system", payload))


def _sum(before: PricedUsage | None, new: PricedUsage) -> PricedUsage:
    if before is None:
        return new
    return PricedUsage(
        new.stage,
        new.engine,
        new.model,
        before.usage + new.usage,
        before.known_cost + new.known_cost,
        tuple(dict.fromkeys((*before.unpriced, *new.unpriced))),
    )


def usage_payload(used: Iterable[PricedUsage], currency: str) -> dict[str, Any]:
    """Return use and cost as JSON; a cost of which a part is not known is null."""
    used = list(used)
    known = sum((each.known_cost for each in used), Decimal(0))
    is_whole = not any(each.unpriced for each in used)
    return {
        "used": [
            {
                "stage": each.stage.value,
                "engine": each.engine,
                "model": each.model,
                **each.usage.amounts(),
                "cost": shown(each.cost),
                "unpriced": list(each.unpriced),
            }
            for each in used
        ],
        "cost": shown(known) if is_whole else None,
        "known_cost": shown(known),
        "currency": currency,
    }
