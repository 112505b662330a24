"""One engine in a process of its own: who has it, for how long, and what is done when it does not answer."""
