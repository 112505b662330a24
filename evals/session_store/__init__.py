"""How many events a second the session store takes, and how long a caller waits for one."""
