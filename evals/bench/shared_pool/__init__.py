"""Measurements of a pool that several gateways share."""
