"""Turn taking: when the bot starts to speak, and what interrupts it."""
