"""Limit of open files of this process."""

import sys

# A higher limit is never useful, and code that looks at every descriptor (subprocess) becomes slow.
MOST_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as allowed, at most to ``MOST_DESCRIPTORS``, and return the limit
    in force.
    """
    if sys.platform == "win32":
        # Windows has no such limit for sockets.
        return MOST_DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_DESCRIPTORS
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        return soft
    return wanted
