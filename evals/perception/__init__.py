"""Perception of calls: the order of the specialists' reports."""
