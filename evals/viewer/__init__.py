"""Time to open a long session in the viewer, and frames while it is scrolled."""
