"""Events that ``recording.json`` has, and their facts. Pure."""

from dataclasses import fields
from decimal import Decimal
from typing import Any

from parley.core.call_events import (
    AnswerHeard,
    BotTurnEnded,
    CallAnswered,
    CallEnding,
    CallerJoined,
    CallerLeft,
    CallEvent,
    ClientDelayReported,
    HoldBegan,
    HoldEnded,
    LatencyHeard,
    PrivatePauseBegan,
    PrivatePauseEnded,
    RecordingDegraded,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyRestored,
    ReplyResumed,
    ReplyStarted,
    TextTyped,
    ToolsCalled,
    TransferBegan,
    TransferEnded,
    TurnEndDecided,
    TurnEnded,
    TurnEstimated,
    TurnPriced,
    TurnStarted,
    TurnTranscribed,
    UtteranceRead,
    VoiceEnded,
    VoiceStarted,
    VoteChanged,
)
from parley.recording.words import as_message

# Events of the timeline.
IN_TIMELINE: tuple[type[CallEvent], ...] = (
    CallerJoined,
    CallerLeft,
    VoiceStarted,
    VoiceEnded,
    TurnStarted,
    TurnEndDecided,
    TurnEnded,
    TurnTranscribed,
    UtteranceRead,
    TurnEstimated,
    TextTyped,
    ToolsCalled,
    ReplyStarted,
    ReplyFinished,
    ReplyDucked,
    ReplyRestored,
    ReplyCut,
    ReplyResumed,
    BotTurnEnded,
    VoteChanged,
    ClientDelayReported,
    AnswerHeard,
    LatencyHeard,
    TurnPriced,
    CallAnswered,
    TransferBegan,
    TransferEnded,
    CallEnding,
    RecordingDegraded,
    PrivatePauseBegan,
    PrivatePauseEnded,
    HoldBegan,
    HoldEnded,
)


def facts_of(event: CallEvent) -> dict[str, Any]:
    """Return the facts of an event, without its time and its name."""
    match event:
        case ReplyFinished():
            return dict(event.heard.as_message())
        case UtteranceRead():
            return as_message(event)
        case TurnPriced(turn=turn, used=used):
            costs = [each.cost for each in used]
            known = [cost for cost in costs if cost is not None]
            # One amount without a price, and the cost of the turn is not known.
            return {"turn": turn, "cost": float(sum(known, Decimal())) if len(known) == len(costs) else None}
    return {each.name: getattr(event, each.name) for each in fields(event) if each.name != "at_ms"}
