"""Replay of a folder of recorded calls: the regression test of prompts, settings and engines."""
