"""Recorded calls that are held again with the configuration of the server."""
