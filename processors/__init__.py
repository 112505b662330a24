"""Thin Pipecat shells, in the order the data meets them. The decisions live in the pure folders."""
