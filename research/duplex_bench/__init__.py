"""Clips of the full-duplex benchmark."""
