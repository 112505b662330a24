"""Calls over a WebSocket: bytes as a client writes them, its speech in real time, what it is told."""
