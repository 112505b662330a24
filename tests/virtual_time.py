"""The event loop of the tests that wait for nothing."""

from evals.virtual_time import EPOCH_S, START_S, VirtualLoop, run

__all__ = ["EPOCH_S", "START_S", "VirtualLoop", "run"]
