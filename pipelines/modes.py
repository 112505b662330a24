"""Names of the modes in which a conversation is held."""

CASCADE, DUPLEX = "cascade", "duplex"
