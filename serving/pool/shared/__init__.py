"""One line of requests and one set of leases for several gateways, in PostgreSQL."""
