"""Parley on a local Ray cluster of two nodes."""
