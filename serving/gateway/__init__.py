"""Public HTTP and WebSocket edge of one process."""
