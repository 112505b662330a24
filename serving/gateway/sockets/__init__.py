"""WebSocket surfaces: realtime protocols, chat sockets and the socket of evaluations."""
