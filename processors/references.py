"""References of processors that have ended, which form cycles.

Reference counting frees what has none; a full garbage collection pauses every call while it runs.
"""

# Values that stay: a late message of the log names the object.
PLAIN = (str, int, float, bool, bytes, type(None))


def forget(target: object) -> None:
    """Cut all references that an object holds; plain values stay."""
    attributes = vars(target)
    plain = {name: value for name, value in attributes.items() if isinstance(value, PLAIN)}
    attributes.clear()
    attributes.update(plain)
