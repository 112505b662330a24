"""Save and share of the MiniCPM-o server's pages: recordings, uploads and a comment of a session."""
