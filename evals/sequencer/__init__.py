"""How fast the sequencer is, whether its memory stays flat and how long it holds what happened."""
