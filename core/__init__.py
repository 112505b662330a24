"""Words shared by every part of Parley: time, media, errors, registries.

Imports nothing of ours, does no input or output and reads no clock.
"""
