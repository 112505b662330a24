"""Voices over the bot: interruptions, backchannels, echo."""
