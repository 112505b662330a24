"""Latency of a voice: from the clause to its first piece of audio, and to its last."""
