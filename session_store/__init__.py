"""Durable record of a conversation, whatever transports it runs over."""
