"""The way from text to sound: clause splitting, synthesis, cached phrases."""
