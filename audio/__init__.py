"""Signal processing on arrays: no input or output, no clock, no Pipecat."""
