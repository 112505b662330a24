"""Memory that conversations with an omni engine leave: many, opened and closed in one process."""
