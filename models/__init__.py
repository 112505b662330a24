"""Engines behind one interface per stage. No Pipecat here: ``processors/`` wraps these for the pipeline.

An engine is loaded once per process and shared by all calls; what belongs to one call lives in the stream
that the engine opens. Engine methods block: callers run them in a thread or in an engine's own process, never
on the loop.

ONNX Runtime's wheels send events to their maker unless a variable says no before they are loaded. A server
that people run themselves tells nobody what it does; who wants that sets the variable to 0.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
