"""Words of a text, whatever its language: lower case, without punctuation. Pure."""

from collections.abc import Iterable, Sequence


def plain(text: str) -> list[str]:
    """Return the words of a text in the vocabulary's form: lower case, no punctuation, hyphens divide."""
    spaced = text.lower().replace("\u2019", "'").replace("-", " ")
    return [word for raw in spaced.split() if (word := raw.strip(" .,!?;:\"'()[]…"))]


def last_word(text: str) -> str:
    """Return the last word in lower case, without punctuation; empty without words."""
    words = text.lower().strip(" .,!?;:-").split()
    return words[-1] if words else ""


def asks(text: str) -> bool:
    """Return whether the last sentence of a text is written as a question."""
    return text.rstrip(" \"')]}\u201d\u2019").endswith("?")


def ends_in(words: list[str], phrases: Iterable[str]) -> bool:
    """Return whether the last words are one of the phrases."""
    return any(words[-len(phrase.split()) :] == phrase.split() for phrase in phrases)


def spoken_list(items: Sequence[str], *, last: str) -> str:
    """Return the items as ``a, b or c``, with ``last`` before the last one."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
