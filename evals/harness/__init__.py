"""Parts that all evaluations share: server launcher, callers by transport, recordings, report, progress."""
