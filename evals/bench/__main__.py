"""``python -m evals.bench NAME``: run one of the micro-benchmarks.

Without a name it lists them. ``python -m evals.bench NAME --help`` shows the options of one.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from parley.evals.__main__ import listed

# Name of each benchmark, and the module whose ``main`` is its command.
BENCHMARKS: Mapping[str, str] = {
    "answer_batching": "parley.evals.bench.answer_batching",
    "batch": "parley.evals.bench.batch",
    "duplex_jitter": "parley.evals.bench.duplex_jitter.__main__",
    "gateway": "parley.evals.bench.gateway.__main__",
    "kv_cache": "parley.evals.bench.kv_cache.__main__",
    "omni_memory": "parley.evals.bench.omni_memory",
    "packet_loss": "parley.evals.bench.packet_loss",
    "phone_noise": "parley.evals.bench.phone_noise",
    "recorder": "parley.evals.bench.recorder",
    "scheduler": "parley.evals.bench.scheduler",
    "sequencer": "parley.evals.bench.sequencer.__main__",
    "session_store": "parley.evals.bench.session_store",
    "shared_pool": "parley.evals.bench.shared_pool.__main__",
    "telemetry": "parley.evals.bench.telemetry",
    "worker_overhead": "parley.evals.bench.worker_overhead",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark with the arguments after its name; return its exit status."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ("--help",)
    if name in BENCHMARKS:
        status: int = import_module(BENCHMARKS[name]).main(arguments)
        return status
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench",
        description="Run a micro-benchmark.",
        epilog=listed({name: module.removesuffix(".__main__") for name, module in BENCHMARKS.items()}),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=tuple(BENCHMARKS), metavar="NAME", help="benchmark to run")
    # The name is unknown, or a question for help: the parser answers either.
    parser.parse_args([name])
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
