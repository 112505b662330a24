"""Event-time order: merge the reports of many specialists into one timeline of words with their annotations.

The package is pure: reports and times come in, committed reports and tokens go out. It reads no clock and
never waits.
"""
