"""Event-time order: what many specialists report becomes one timeline of words and what was perceived with
them.

Pure: reports and times come in, committed reports and tokens go out. Nothing here reads a clock or waits.
"""
