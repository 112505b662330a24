"""Rooms that are elsewhere, which the bot joins as one of those who talk there."""
