"""MiniCPM-o 4.5 in a worker of its own server, or behind that server's gateway, over its WebSocket.

engine (blocking client) <-- wire: JSON messages --> /ws/duplex/{session_id}
"""
