"""Micro-benchmarks: one part of the product each, without a call."""
