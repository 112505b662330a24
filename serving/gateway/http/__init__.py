"""The HTTP server: its bounds, middleware, connections and long responses."""
