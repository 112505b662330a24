"""Media streams of phone networks for which Pipecat has a serializer."""
