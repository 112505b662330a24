"""Perception specialists as Pipecat services: speech to text and what else is heard or seen."""
