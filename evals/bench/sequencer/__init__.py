"""Speed of the sequencer, its memory over time, and the delay from event to commit."""
