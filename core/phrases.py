"""Phrases of a deployment that have fields, as "You are number {position} in the queue". Pure."""

from string import Formatter


def checked_phrase(phrase: str, *fields: str) -> str:
    """The phrase, if ``str.format`` fills it with these fields and nothing else.

    Raises:
        ValueError: another field, a part of one, a conversion, or a brace that stands alone.
    """
    try:
        parts = list(Formatter().parse(phrase))
    except ValueError:
        # A brace that stands alone: "{{" is one that is said.
        parts = [("", "", "", None)]
    for _, name, spec, conversion in parts:
        if name is not None and (name not in fields or spec or conversion):
            known = " and ".join(f"{{{field}}}" for field in fields)
            raise ValueError(f"expected a text with no other field than {known}")
    return phrase
