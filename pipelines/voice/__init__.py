"""Pipelines of spoken conversations: cascade, full duplex, realtime services."""
