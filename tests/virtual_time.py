"""Event loop of virtual time for tests: timers expire without waiting."""

from parley.evals.virtual_time import EPOCH_S, START_S, VirtualLoop, run

__all__ = ["EPOCH_S", "START_S", "VirtualLoop", "run"]
