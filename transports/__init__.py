"""Transports: the edges at which media enters and leaves."""
