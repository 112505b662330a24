"""Reasons in errors of Ray, for messages. Ray itself is not needed."""

MOST_CHARS = 500
# Of the message of ``ActorDiedError`` in Ray 2.60.
CREATION = "raised in its creation task"


def is_failed_creation(error: Exception) -> bool:
    """Return whether an error of Ray says that the constructor of an actor raised one."""
    # Ray has no public attribute for it. One that is not recognised counts as the loss of an actor.
    return CREATION in str(error)


def last_line(error: Exception) -> str:
    """Return the last line of an error, which names the cause where it ends with a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:MOST_CHARS] if lines else ""
