"""Names of the modes in which a conversation is held."""

CASCADE, DUPLEX = "cascade", "duplex"
# In metrics and traces: full duplex by a service of its provider. A caller requests ``DUPLEX``.
REALTIME = "realtime"
