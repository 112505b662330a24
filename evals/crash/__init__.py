"""Repeated kills of a server in the middle of conversations, and the state of its successor."""
