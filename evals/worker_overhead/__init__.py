"""Cost of running a recogniser or a voice in a worker."""
