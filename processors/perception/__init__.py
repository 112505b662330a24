"""Perception specialists as Pipecat services: speech to text and other analyses of audio and video."""
