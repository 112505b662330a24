"""Options of a worker, and the engines that it can host.

Imports neither Pipecat nor a web framework: a worker runs in a Python environment without them.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from parley.core.registry import Registry
from parley.models.llm.kv import CAUSAL
from parley.models.omni import OMNI
from parley.models.stt import STT
from parley.models.tts import TTS

KINDS: Mapping[str, Registry[Any]] = {"omni": OMNI, "stt": STT, "tts": TTS, "llm": CAUSAL}
# The two-tier engine has its large tier in the bot's process, and a worker does not host another worker.
_NOT_HOSTED = ("two_tier", "worker")
HOSTED: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name in registry.names() if name not in _NOT_HOSTED)
    for kind, registry in KINDS.items()
}
KNOWN = tuple(sorted({name for names in HOSTED.values() for name in names}))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options: the engine with its settings, the address, the bounds."""
    parser.add_argument("--engine", help=f"engine to host, one of: {', '.join(KNOWN)}")
    parser.add_argument(
        "--kind",
        choices=tuple(KINDS),
        help="kind of the engine, where several kinds have an engine of that name",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the engine, with a YAML value; may be repeated",
    )
    parser.add_argument("--name", default="worker", help="name of the worker, as in its tokens")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1, or the deployment's)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 22400, or the deployment's)")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="deadline or bound of the worker, such as lease_ms=6000; may be repeated",
    )
    parser.add_argument(
        "--print-url",
        action="store_true",
        help="print the worker's address to standard output, for the process that started it",
    )
