"""A full-duplex engine in place of dialogue and speech: one prefill and one generation per unit."""
