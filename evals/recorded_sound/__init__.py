"""Comparison of the recording of a long call with what its client itself played and said."""
