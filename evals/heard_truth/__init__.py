"""Accuracy of the record of an interrupted reply, judged by the caller's recording."""
