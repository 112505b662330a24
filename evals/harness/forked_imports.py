"""Imports of the process from which servers are forked: importing this module loads what all servers need.

It runs no thread, which a fork would lose. The objects are exempt from garbage collection: a collection in a
server would go through them, and copy the memory that they share.
"""

import gc
import importlib

from parley.models.tts.hibari import front_end

# Modules of a server of the embedded deployment that accepts calls; many are imported by these.
MODULES = (
    # For the function that a forked server runs.
    "parley.evals.harness.forked_servers",
    "uvloop",
    # FastAPI imports it with the first route.
    "pydantic.v1",
    "parley.command.bot_line",
    "parley.command.server",
    "parley.command.gateway",
    "parley.pipelines.dispatch",
    "parley.pipelines.engines.engines",
    "parley.pipelines.human_tier",
    "parley.pipelines.session_tiers",
    "parley.pipelines.openai_audio",
    "parley.pipelines.phone.relay",
    "parley.pipelines.sessions",
    "parley.pipelines.sockets.client_tools",
    "parley.serving.gateway.app",
    "parley.serving.gateway.http.server",
    "parley.telemetry.stall_log",
    "parley.transports.webrtc.signaling",
    "parley.models.echo.webrtc",
    "parley.models.keyword_spotting.pocketsphinx",
    "parley.models.specialists.prosody",
    "parley.models.stt.moonshine_tiny",
    "parley.models.tts.espeak",
    "parley.models.tts.flite",
    "parley.models.tts.hibari",
    "parley.language.english",
    "hibari.dsp",
    "hibari.g2p.oov",
    "safetensors.numpy",
    "tokenizers",
)

for _name in MODULES:
    importlib.import_module(_name)
front_end()
gc.collect()
gc.freeze()
