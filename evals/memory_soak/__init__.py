"""Whether memory, threads, descriptors and tasks of a server grow while it is never idle."""
