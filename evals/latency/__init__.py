"""Voice-to-voice latency, false cut-ins and capacity, measured in the callers' recordings."""
