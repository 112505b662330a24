"""Phrases of a deployment that have fields, such as "You are number {position} in the queue". Pure."""

from string import Formatter


def validate_template(phrase: str, *fields: str) -> str:
    """Return the phrase if ``str.format`` fills it with these fields and no others.

    Raises:
        ValueError: another field, a part of a field, a conversion, or an unmatched brace.
    """
    try:
        parts = list(Formatter().parse(phrase))
    except ValueError:
        # An unmatched brace; "{{" is a literal one.
        parts = [("", "", "", None)]
    for _, name, spec, conversion in parts:
        if name is not None and (name not in fields or spec or conversion):
            known = " and ".join(f"{{{field}}}" for field in fields)
            raise ValueError(f"expected a text without fields other than {known}")
    return phrase
