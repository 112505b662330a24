"""Front end of the caller's audio: from the raw microphone to voice activity."""
