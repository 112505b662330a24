"""Words of an MCP server about a failure, as a model may read them: short, on one line, without secrets.

The words come from a program that this deployment does not control. The model reads them inside of a result
that is marked as failed, after words of this server's own; they are never an answer of a tool. Pure.
"""

import re
from collections.abc import Iterable

# More than a model needs to explain a failure to a caller.
MOST_CHARS = 300
# Read of a text that may have any length.
MOST_READ_CHARS = 20_000
# A shorter value of a variable is a word or a number like any other.
LEAST_SECRET_CHARS = 6
REMOVED = "[removed]"
# "api_key=...", "token: ...", "Bearer ..."; the part of an address after its question mark.
_NAMED = re.compile(
    r"(?i)\b((?:api[_-]?key|access[_-]?key|token|secret|password|passwd|authorization)\"?\s*[=:]\s*|bearer\s+)"
    r"(?:(?:bearer|basic)\s+)?[^\s,;]+"
)
_QUERY = re.compile(r"(\bhttps?://[^\s?]{1,500})\?\S+")
_CREDENTIALS = re.compile(r"(\bhttps?://)[^\s/@]{1,200}@")


def secrets_among(values: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets in values of variables and headers, the longest first.

    The credential of a header is a secret on its own, without its scheme ("Bearer").
    """
    parts = {part for value in values for part in (value, value.rpartition(" ")[2])}
    return tuple(sorted((each for each in parts if len(each) >= LEAST_SECRET_CHARS), key=len, reverse=True))


def shown_reason(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a server's words for the model, at most ``MOST_CHARS`` characters.

    Args:
        text: of the server; any length, any characters.
        secrets: texts that are never shown.
    """
    text = text[:MOST_READ_CHARS]
    for secret in secrets:
        text = text.replace(secret, REMOVED)
    text = "".join(each if each.isprintable() else " " for each in text)
    text = _CREDENTIALS.sub(rf"\1{REMOVED}@", _QUERY.sub(rf"\1?{REMOVED}", text))
    text = " ".join(_NAMED.sub(rf"\1{REMOVED}", text).split())
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."
