"""Media streams of telephone networks that Pipecat has a serializer for."""
