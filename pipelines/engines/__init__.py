"""Engines of one process: chosen, checked, loaded and shared by every call."""
