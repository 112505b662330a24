"""Punctuality of units and of the engine's output, measured on an engine of known cost."""
