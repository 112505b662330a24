"""Estimates of a recorded call's completeness model, read from its timeline, a file from anywhere. Pure."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from parley.core.call_events import TurnEstimated

# A long call has a few thousand.
MOST_ESTIMATES = 20_000
MOST_POSITION_MS = 86_400_000


class _Estimate(BaseModel):
    at_ms: int
    model: Annotated[str, Field(max_length=200)]
    look: Annotated[str, Field(max_length=20)]
    heard_ms: Annotated[int, Field(ge=0, le=MOST_POSITION_MS)]
    complete: Annotated[float, Field(ge=0, le=1)]
    filler_log_odds: float | None = None


def estimates_of(
    events: Iterable[Mapping[str, Any]], arrival_ms: float, *, left_out_ms: int = 0
) -> tuple[TurnEstimated, ...]:
    """Return the estimates among the events of a timeline, with times from the caller's arrival.

    ``left_out_ms`` is the length of the caller's first audio that is not held again. An estimate in another
    form is left out: it is made anew.
    """
    found = list[TurnEstimated]()
    for each in events:
        if each["event"] != TurnEstimated.__name__:
            continue
        try:
            given = _Estimate.model_validate(each)
        except ValidationError:
            continue
        found.append(
            TurnEstimated(
                round(given.at_ms - arrival_ms),
                model=given.model,
                look=given.look,
                heard_ms=max(0, given.heard_ms - left_out_ms),
                complete=given.complete,
                filler_log_odds=given.filler_log_odds,
            )
        )
        if len(found) == MOST_ESTIMATES:
            break
    return tuple(found)
