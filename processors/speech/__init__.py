"""From text to audio: clause splitting, synthesis, cached phrases."""
