"""``python -m evals.bench omni_memory``: report the memory that remains of each closed conversation.

The first ones are not counted: the allocator, the threads and the library allocate what they keep. After
them, the memory of a process without leaks is constant. Garbage is collected before each measurement; nothing
else is done to make the figure small. Without ``--model`` a tiny one is made, with the code of the real one:
leaked objects and caches are the same, whatever their size.
"""

import argparse
import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

from parley.core.errors import ConfigError
from parley.evals.harness.command import count, machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, run_command
from parley.models.omni import OMNI, OmniEngine, OmniHost, Preparation
from parley.models.omni.moshi.settings import MoshiSettings

MIB = 2**20
# Number of measurements on the way, to distinguish a slope from a step.
LOOKS = 10


def moshi(model: str | None, folder: Path) -> OmniHost:
    """Open a Moshi of this machine, or a tiny one in the folder."""
    if model is None:
        try:
            from parley.evals.tiny_moshi import install_tiny_moshi
        except ImportError as error:
            raise ConfigError(f"needs the extra 'moshi': pip install -e '.[moshi]' ({error})") from error
        # More than one thread slows down layers this narrow.
        return OMNI.create("moshi", MoshiSettings(model=str(install_tiny_moshi(folder)), threads=1))
    return OMNI.create("moshi", MoshiSettings(model=model))


ENGINES: dict[str, Callable[[str | None, Path], OmniHost]] = {"moshi": moshi}


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench omni_memory",
        description="Measure the memory that conversations with an omni engine do not free.",
    )
    root.add_argument("--engine", choices=sorted(ENGINES), default="moshi")
    root.add_argument("--model", help="directory or id of the weights; default: a tiny model")
    root.add_argument("--sessions", type=positive, default=100, help="measured conversations")
    root.add_argument("--units", type=positive, default=25, help="units per conversation")
    root.add_argument("--warm-up", type=count, default=20, help="conversations before the measured ones")
    add_outputs(root, with_table=False)
    return root


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    looks = " | ".join(f"{size / MIB:.1f}" for size in result["rss_bytes"].values())
    return "\n".join(
        (
            f"{result['engine']}: {result['sessions']} conversations of {result['units']} units, "
            f"after {result['warm_up']} others",
            f"| conversations | {' | '.join(str(number) for number in result['rss_bytes'])} |",
            f"|{'---|' * (1 + len(result['rss_bytes']))}",
            f"| memory of the process, MiB | {looks} |",
            f"from the first to the last {result['growth_bytes_per_session'] / 1024:.1f} KiB for each; "
            f"slope {result['slope_bytes_per_session'] / 1024:.1f} KiB",
        )
    )


def converse(engine: OmniEngine, units: int, seed: int) -> None:
    """Hold one conversation on noise, and release it."""
    random = np.random.default_rng(seed)
    engine.prepare(Preparation())
    for number in range(units):
        length_ms = engine.unit_ms if number else engine.first_unit_ms
        samples = length_ms * engine.input_rate_hz // 1000
        engine.prefill((0.1 * random.standard_normal(samples)).clip(-1, 1).astype(np.float32))
        engine.generate()
        engine.finalize()
    engine.stop()
    engine.cleanup()


def measure(host: OmniHost, *, sessions: int, units: int, warm_up: int) -> dict[str, Any]:
    """Open and close conversations.

    Args:
        host: of the engines.
        sessions: number of those that are counted.
        units: of each.
        warm_up: number of conversations before them.

    Returns:
        ``rss_bytes``: number of conversations after the warm-up to memory of the process.
            ``growth_bytes_per_session``: from the first measurement to the last. ``slope_bytes_per_session``:
            of the line through all measurements.
    """
    for number in range(warm_up):
        converse(host.open_engine(), units, number)
    progress = Progress("memory after a tenth of the conversations", LOOKS)
    looks = {0: _rss_bytes()}
    at = {round(sessions * (look + 1) / LOOKS) for look in range(LOOKS)} - {0}
    for number in range(sessions):
        converse(host.open_engine(), units, warm_up + number)
        if number + 1 in at:
            looks[number + 1] = _rss_bytes()
            progress.step(f"{looks[number + 1] / MIB:.1f} MiB")
    counts, sizes = np.array(list(looks), float), np.array(list(looks.values()), float)
    return {
        "sessions": sessions,
        "units": units,
        "warm_up": warm_up,
        "rss_bytes": looks,
        "growth_bytes_per_session": round((sizes[-1] - sizes[0]) / sessions),
        "slope_bytes_per_session": round(float(np.polyfit(counts, sizes, 1)[0])),
    }


def _rss_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure an engine.

    Raises:
        AgentError: it cannot be loaded.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="omni-memory-")))
        host = ENGINES[arguments.engine](arguments.model, folder)
        stack.callback(host.close)
        found = measure(host, sessions=arguments.sessions, units=arguments.units, warm_up=arguments.warm_up)
    return {
        "engine": arguments.engine,
        "model": arguments.model or "tiny",
        **found,
        "machine": machine(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: run(arguments), table)


if __name__ == "__main__":
    raise SystemExit(main())
