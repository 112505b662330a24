"""Calls over a WebSocket: codecs of a client's audio, its speech in real time, and messages to it."""
