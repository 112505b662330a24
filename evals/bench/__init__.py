"""Micro-benchmarks: one part of the product each, without a call."""

from collections.abc import Mapping

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
