"""Placement of conversations: the gateway, the scheduler, the pool and the workers."""
