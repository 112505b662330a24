"""Tool of the model: a function, whose parameters and docstring are what the model reads about it."""

from typing import Annotated, Literal, TypedDict

from pydantic import Field

HOURS = {"saturday": (10, 14), "sunday": None}


class Hours(TypedDict, total=False):
    """Opening hours of a day."""

    is_open: bool
    from_hour: int
    until_hour: int


def opening_hours(
    day: Annotated[Literal["saturday", "sunday"], Field(description="day of the weekend")],
) -> Hours:
    """Look up when the aviary is open at the weekend."""
    hours = HOURS[day]
    if hours is None:
        return {"is_open": False}
    return {"is_open": True, "from_hour": hours[0], "until_hour": hours[1]}
