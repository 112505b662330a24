"""Calls in which a stage fails at a random moment, judged by the audio that their callers hear."""
