"""Media that is stored along with the session."""
