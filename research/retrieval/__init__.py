"""Search in documents: orders of the passages that were tried."""
