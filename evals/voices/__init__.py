"""How soon a voice is heard: from the clause to its first piece of audio, and to its last."""
