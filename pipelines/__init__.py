"""Wiring only: engines and processors into conversations."""
