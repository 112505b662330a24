"""Programs of other projects against a running server: idle and under load."""
