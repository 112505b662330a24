"""Which conversation runs on which worker: who waits, who is next, how long it will take. Pure."""
