"""Latency, metrics and logs, for people and for evaluations."""
