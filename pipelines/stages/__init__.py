"""Stages of the voice pipelines: each part of a mode's outline is made here, once."""
