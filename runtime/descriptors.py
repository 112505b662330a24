"""Limit of open files of this process."""

import sys

# More is never useful, and code that looks at every descriptor (subprocess) becomes slow.
MOST_DESCRIPTORS = 65_536


def raise_descriptor_limit() -> int:
    """Raise the soft limit as far as the process may, at most to ``MOST_DESCRIPTORS``; return what it is."""
    if sys.platform == "win32":
        # There is no such limit of sockets.
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
