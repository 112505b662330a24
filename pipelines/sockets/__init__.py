"""Conversations over WebSockets: realtime protocols and chat sockets."""
