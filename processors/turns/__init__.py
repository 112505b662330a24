"""Turn processors: they translate frames for the policies of ``turn_taking`` and own the timers."""
