"""The workers of one gateway: watched, started again, and given to conversations in their order."""
