"""Workers of one gateway: watched, restarted, and assigned to conversations in their order."""
