"""Capacity plans from measured costs, and a simulation of the scheduler at fleet size."""
