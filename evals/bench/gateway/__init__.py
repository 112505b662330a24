"""Latency that the gateway adds to a unit of full duplex, with many sessions at a time."""
