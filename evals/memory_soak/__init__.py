"""Growth of the memory, threads, descriptors and tasks of a server that is never idle."""
