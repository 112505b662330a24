"""What the log says of a failure: what broke and where, not in whose conversation.

Without client keys the id of a session is all that it takes to use it, so a whole one is never logged: its
first eight characters tell which session it was. Values of variables stay out of it too: a sink that shows
them in a traceback (loguru's ``diagnose``) would show words of people.
"""

import re
import traceback

from loguru import logger

from session_store.rows import SESSION_ID, SHOWN_CHARS

_ANYWHERE = re.compile(SESSION_ID.pattern, re.IGNORECASE)


def without_ids(text: str) -> str:
    """A text in which every id of a session is cut to its beginning."""
    return _ANYWHERE.sub(lambda found: f"{found[0][:SHOWN_CHARS]}...", text)


def log_failure(what: str, error: BaseException) -> None:
    """One record of a failure that ends here.

    Args:
        what: what failed, for people.
        error: why.
    """
    trace = "".join(traceback.format_exception(error))
    # As one text: a record that carries the exception is formatted by each sink, in its own way.
    logger.opt(depth=1).error(without_ids(f"{what}\n{trace}".rstrip()))
