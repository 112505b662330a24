"""Fit of the prosody specialist's line."""
