"""Voice-to-voice latency, false cut-ins and capacity, measured by callers who record what they hear."""
