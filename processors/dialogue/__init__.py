"""Dialogue: the language model as a Pipecat service, and the stages around it."""
