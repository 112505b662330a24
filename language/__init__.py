"""Rules about natural languages."""
