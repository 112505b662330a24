"""Recognisers on human speech: word errors, stability, latency and cost."""
