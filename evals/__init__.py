"""Measurements against a running server."""
