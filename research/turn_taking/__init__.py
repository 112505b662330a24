"""Turn taking: fits and baselines."""
