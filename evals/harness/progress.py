"""Progress of a measurement on standard error (``runtime.progress``)."""

from parley.runtime.progress import Progress, say

__all__ = ["Progress", "say"]
