"""Share one line of requests and one set of leases between gateways, in PostgreSQL."""
