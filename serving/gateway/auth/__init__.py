"""Identity of clients and of the operator: credentials, grants, usage, audit."""
