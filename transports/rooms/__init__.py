"""Rooms hosted by another server, which the bot joins as a participant."""
