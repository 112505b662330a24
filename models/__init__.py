"""Engines behind one interface per stage. No Pipecat here: ``processors/`` wraps these for the pipeline.

An engine is loaded once per process and shared by all calls; the state of one call is in the stream that the
engine opens. Engine methods block: callers run them in a thread or in an engine's own process, never on the
loop.

ONNX Runtime's wheels send telemetry to their maker unless a variable disables it before they are loaded. A
self-hosted server must not report its use to third parties; to allow it, set the variable to 0.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
