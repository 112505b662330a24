"""Log failures without revealing the conversation in which they happened.

Without client keys the id of a session is enough to use it, so a whole id is never logged; its first eight
characters identify the session. Values of variables are left out as well. A sink that adds them to a
traceback (loguru's ``diagnose``) would reveal what people said.
"""

import re
import traceback

from loguru import logger

from parley.session_store.rows import SESSION_ID, SHOWN_CHARS

_ANYWHERE = re.compile(SESSION_ID.pattern, re.IGNORECASE)


def without_ids(text: str) -> str:
    """Return a text in which every session id is cut to its beginning."""
    return _ANYWHERE.sub(lambda found: f"{found[0][:SHOWN_CHARS]}...", text)


def log_failure(what: str, error: BaseException) -> None:
    """Log a failure that is handled here, as one record.

    Args:
        what: description of the operation that failed.
        error: the cause.
    """
    trace = "".join(traceback.format_exception(error))
    # Logged as one text: each sink would format a record with an exception in its own way.
    logger.opt(depth=1).error(without_ids(f"{what}\n{trace}".rstrip()))
