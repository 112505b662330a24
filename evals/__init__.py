"""Measurements of engines, turn rules and running servers; ``python -m evals`` lists them."""
