"""Worker process for one engine: its leases, its lifecycle, and the handling of calls that hang."""
