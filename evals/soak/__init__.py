"""Growth of the memory, threads, descriptors, tasks, database and latency of a server that is never idle."""
