"""The public HTTP and WebSocket edge of one process."""
