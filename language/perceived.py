"""Interface of the rules for words that mean more with what was perceived while they were said. Pure."""

from typing import Protocol


class PerceivedRules(Protocol):
    """Rules of one language."""

    def name_referent(self, text: str, referent: str, before: str, /) -> str:
        """Return ``before`` and ``text`` with what was pointed at in the place of the word in ``text`` that
        points ("this one").
        """
        ...

    def last_pointing(self, text: str, /) -> tuple[int, int] | None:
        """Return where the last words of a text that point begin and end ("this one"); None without any."""
        ...

    def approves(self, text: str, /) -> bool:
        """Return whether a text says that all is well, and nothing else."""
        ...

    def opposes(self, first: str, second: str, /) -> bool:
        """Return whether the second of two people wants the opposite of what the first one has said."""
        ...


class NoPerceived:
    """Rules of a language that has none: words mean what they say."""

    def name_referent(self, text: str, _referent: str, before: str, /) -> str:
        """Return both as they are."""
        return f"{before} {text}".strip()

    def last_pointing(self, _text: str, /) -> tuple[int, int] | None:
        """Return None."""
        return None

    def approves(self, _text: str, /) -> bool:
        """Return False."""
        return False

    def opposes(self, _first: str, _second: str, /) -> bool:
        """Return False."""
        return False
