"""A server that is killed in the middle of conversations, again and again."""
