"""Is an engine asked on time, and does what it says leave on time? Measured on an engine of known cost."""
