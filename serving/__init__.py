"""Which conversation runs where."""
