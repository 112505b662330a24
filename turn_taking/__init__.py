"""Who holds the floor: pure policies, events and times in, decisions out. Nothing here reads a clock."""
