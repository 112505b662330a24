"""From raw microphone audio to voice activity."""
