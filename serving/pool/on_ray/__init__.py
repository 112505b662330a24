"""Workers and the line of several gateways on a Ray cluster."""
