"""What keeping a conversation's cache is worth, and that no answer ever stands on another context's."""
