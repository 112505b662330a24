"""Media streams of telephone networks for which Pipecat has a serializer."""
