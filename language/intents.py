"""Interface of the rules for intents: turns that are no question but a request to the bot. Pure."""

from enum import Enum
from typing import Protocol

from parley.core.tiers import Medium


class CallerIntent(Enum):
    """Request that is neither for the model nor for the documents."""

    HUMAN = "human"
    FAREWELL = "farewell"
    STOP = "stop"
    MOMENT = "moment"
    REPEAT = "repeat"
    MORE = "more"


class IntentRules(Protocol):
    """Rules for intents of one language."""

    def caller_intent(self, text: str, /) -> CallerIntent | None:
        """Return the request that a turn makes when it contains nothing else; None for anything else."""
        ...

    def is_farewell(self, text: str, /) -> bool:
        """Return whether a turn takes leave and says nothing else."""
        ...

    def requests_human(self, text: str, /) -> bool:
        """Return whether a turn asks to talk to a person and says nothing else."""
        ...

    def requested_medium(self, text: str, /, *, is_shown: bool) -> Medium | None:
        """Return the medium that a turn asks for and says nothing else; None for anything else.

        Args:
            text: words of the turn.
            is_shown: a camera or a screen is on. To turn it off is to ask for voice alone.
        """
        ...

    def ends_in_farewell(self, text: str, /) -> bool:
        """Return whether a short turn ends in a farewell, or says that it was all."""
        ...

    def asks_for_a_moment(self, text: str, /) -> bool:
        """Return whether a short turn asks the bot to wait."""
        ...

    def says_goodbye(self, text: str, /) -> bool:
        """Return whether a text of the bot, of any length, ends with a goodbye."""
        ...


class NoIntents:
    """Rules of a language that has none: every turn is a question."""

    def caller_intent(self, text: str, /) -> CallerIntent | None:
        """Return None."""
        return None

    def is_farewell(self, text: str, /) -> bool:
        """Return False."""
        return False

    def requests_human(self, text: str, /) -> bool:
        """Return False."""
        return False

    def requested_medium(self, text: str, /, *, is_shown: bool) -> Medium | None:
        """Return None."""
        return None

    def ends_in_farewell(self, text: str, /) -> bool:
        """Return False."""
        return False

    def asks_for_a_moment(self, text: str, /) -> bool:
        """Return False."""
        return False

    def says_goodbye(self, text: str, /) -> bool:
        """Return False."""
        return False
