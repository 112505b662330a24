"""Sounds over the bot's voice: which stop it, and how soon; ends of turns in ``frontier``."""
