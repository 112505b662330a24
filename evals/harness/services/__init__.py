"""Servers on loopback that speak the protocols of services, with faults."""
