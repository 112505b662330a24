"""Playout of the bot's voice: the record of what was heard."""
