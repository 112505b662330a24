"""Reference voices: stored, decoded in a child process, served."""
