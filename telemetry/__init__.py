"""Latency, metrics and logs: what happened and when, for people and for evals."""
