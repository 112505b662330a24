"""Types shared by every part of Parley: time, media, errors, registries.

Imports nothing else of the project, does no input or output and reads no clock.
"""
