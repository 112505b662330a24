"""Fusion of the specialists' reports into the words of a turn."""
