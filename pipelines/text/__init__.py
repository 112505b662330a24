"""Typed turns: the terminal and the sessions API."""
