"""Effect of keeping a conversation's cache, and a check that no answer depends on another context's."""
