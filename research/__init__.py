"""Training and exploration of what Parley ships; see README.md. Outside of the gate."""
