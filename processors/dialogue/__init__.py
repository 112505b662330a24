"""What answers: the language model as a Pipecat service, and the guard that hides its failures."""
