"""Media written beside the session."""
