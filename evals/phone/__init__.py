"""Telephone calls with simulated callers: protocol, what was heard, bad lines, many calls at a time."""
