"""How a conversation is held, by name."""

CASCADE, DUPLEX = "cascade", "duplex"
