"""Telephone calls with simulated callers: protocol, audible output, bad lines, many calls at a time."""
