"""Names of the modes in which a conversation is held."""

CASCADE, DUPLEX = "cascade", "duplex"
# In metrics and traces: full duplex by a service of its provider. A caller requests ``DUPLEX``.
REALTIME = "realtime"
# In the list of live calls: a conversation in writing or a phone call as text, and the call of a human at the
# desk.
TEXT, DESK = "text", "desk"
