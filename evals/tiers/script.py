"""Scripts of sessions: at which tier each fact is asked for, and how the session gets there. Pure.

A leg is one fact. Consecutive legs differ in their tier, so that each session changes it as often as it has
legs. All changes between text, voice, a camera, a shared screen, a human in writing and a human in a call are
drawn equally often.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from parley.evals.tiers.model_peer import SLOTS


class Place(StrEnum):
    """Tier of a leg."""

    TEXT = "text"
    VOICE = "voice"
    CAMERA = "camera"
    SCREEN = "screen"
    HUMAN_TEXT = "human in writing"
    HUMAN_VOICE = "human in a call"

    @property
    def is_call(self) -> bool:
        """True when the caller is in a call."""
        return self not in (Place.TEXT, Place.HUMAN_TEXT)

    @property
    def is_human(self) -> bool:
        """True when a human has the session."""
        return self in (Place.HUMAN_TEXT, Place.HUMAN_VOICE)


class Way(StrEnum):
    """Way in which a human comes, or in which the caller changes the medium."""

    WISH = "the caller asks"
    OTHER = "without being asked"
    """The desk takes over; the caller changes the medium without a word, or takes an offer of the agent."""


@dataclass(frozen=True, slots=True)
class Leg:
    """Part of a session in which the caller gives one fact.

    Attributes:
        place: tier at which it is asked for and given.
        way: in which a human comes, and the caller changes the medium.
        wavers: the caller asks for a human first and then goes on with the agent.
        note: the human hands back with a note.
    """

    place: Place
    way: Way
    wavers: bool
    note: bool


def draw(seed: int, number: int) -> list[Leg]:
    """Return the legs of a session, one for each slot."""
    chance = random.Random(f"{seed}.{number}")
    legs: list[Leg] = []
    for _ in SLOTS:
        before = legs[-1].place if legs else None
        place = chance.choice([each for each in Place if each is not before])
        legs.append(Leg(place, chance.choice(list(Way)), chance.random() < 0.2, chance.random() < 0.5))
    return legs
