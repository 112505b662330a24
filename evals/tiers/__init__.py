"""Sessions that change their tier: what is known stays known, and nothing is asked twice."""
