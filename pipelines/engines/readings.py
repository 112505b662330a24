"""State of the engines of a process for its operator: circuit breakers, and child processes."""

from collections.abc import Iterable, Iterator

from parley.configs.deployment import Deployment
from parley.core.failover import CircuitBreaker, CircuitState
from parley.core.usage import Stage
from parley.pipelines.engines.loading import Loaded
from parley.pipelines.engines.service_fallbacks import ServiceRecogniser, ServiceVoices, WorkerRecogniser
from parley.runtime.engine_pool import EnginePool
from parley.telemetry.failure_log import MOST_REASON_CHARS, CircuitReading, EngineProcessReading
from parley.telemetry.metrics import REALTIME


def circuits_of(
    loaded: Loaded, deployment: Deployment, realtime: CircuitBreaker | None, *, now_ms: int
) -> list[CircuitReading]:
    """Return the state of the circuit breakers, one for each engine that has a fallback.

    Args:
        loaded: engines of the process.
        deployment: which names them.
        realtime: breaker of a realtime service; None without one.
        now_ms: present time, on the clock of the calls.
    """
    return [
        CircuitReading(
            stage,
            engine,
            breaker.state.name.lower(),
            max(0, breaker.due_ms - now_ms) if breaker.state is CircuitState.OPEN else 0,
        )
        for stage, engine, breaker in _breakers(loaded, deployment, realtime)
    ]


def _breakers(
    loaded: Loaded, deployment: Deployment, realtime: CircuitBreaker | None
) -> Iterator[tuple[str, str, CircuitBreaker]]:
    if isinstance(loaded.stt, ServiceRecogniser):
        yield Stage.STT, loaded.stt.row.name, loaded.stt.breaker
    if isinstance(loaded.stt, WorkerRecogniser):
        yield Stage.STT, loaded.stt.name, loaded.stt.breaker
    if deployment.thinking.fallback is not None:
        yield Stage.LLM, deployment.thinking.llm.name, loaded.answering.circuit
    if isinstance(loaded.tts, ServiceVoices):
        for row, breaker in zip(loaded.tts.rows, loaded.tts.breakers, strict=True):
            yield Stage.TTS, row.name, breaker
    if realtime is not None:
        yield REALTIME, deployment.duplex.engine.name, realtime


def processes_of(engines: Iterable[object]) -> list[EngineProcessReading]:
    """Return the state of the child processes of some engines; others have none."""
    pools = [
        each.embedded if isinstance(each, ServiceRecogniser | WorkerRecogniser) else each for each in engines
    ]
    return [
        EngineProcessReading(
            one.name, one.is_ready, one.restarts, one.ended_s, one.end_reason[:MOST_REASON_CHARS]
        )
        for pool in pools
        if isinstance(pool, EnginePool)
        for one in (*pool.processes, *pool.spares)
    ]
