"""The end of the road for the bot's voice: what of it was heard."""
