"""Engines behind one interface per stage. No Pipecat here: ``processors/`` wraps these for the pipeline.

An engine is loaded once per process and shared by all calls; what belongs to one call lives in the stream
that the engine opens. Engine methods block: callers run them in a thread or in an engine's own process, never
on the loop.
"""
