"""Where media enters and leaves."""
