"""What it costs that a recogniser or a voice is in a worker."""
