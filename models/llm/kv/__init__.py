"""What a model keeps of a conversation between its turns, and the proof of what that is."""
