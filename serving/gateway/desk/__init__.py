"""The desk: a human who holds a session in place of the model."""
