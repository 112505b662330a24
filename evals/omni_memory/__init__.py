"""What a conversation with an omni engine leaves behind in memory: many, opened and closed in one process."""
