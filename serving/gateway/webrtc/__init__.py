"""Routes of WebRTC calls, from ``/start`` to the first media."""
