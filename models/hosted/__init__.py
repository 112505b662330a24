"""Client side of engines in workers of this deployment: the link to a worker, and its address."""
