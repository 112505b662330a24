"""``python -m evals.omni_memory``: open and close conversations; report the memory that remains of each.

Without ``--model`` a tiny one is made, with the code of the real one: leaked objects and caches are the same,
whatever their size.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parley.core.errors import AgentError, ConfigError
from parley.evals.harness.command import count, machine, positive
from parley.evals.omni_memory.measure import measure
from parley.models.omni import OMNI, OmniHost
from parley.models.omni.moshi.settings import MoshiSettings

MIB = 2**20


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
        prog="python -m evals.omni_memory",
        description="Measure the memory that conversations with an omni engine leave behind.",
    )
    root.add_argument("--engine", choices=sorted(ENGINES), default="moshi")
    root.add_argument("--model", help="directory or id of the weights; default: a tiny model")
    root.add_argument("--sessions", type=positive, default=100, help="measured conversations")
    root.add_argument("--units", type=positive, default=25, help="units per conversation")
    root.add_argument("--warm-up", type=count, default=20, help="conversations before the measured ones")
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    return root


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    looks = " | ".join(f"{size / MIB:.1f}" for size in result["rss_bytes"].values())
    return "\n".join(
        (
            f"{result['engine']}: {result['sessions']} conversations of {result['units']} units, "
            f"behind {result['warm_up']} others",
            f"| conversations | {' | '.join(str(number) for number in result['rss_bytes'])} |",
            f"|{'---|' * (1 + len(result['rss_bytes']))}",
            f"| memory of the process, MiB | {looks} |",
            f"from the first to the last {result['growth_bytes_per_session'] / 1024:.1f} KiB for each; "
            f"slope {result['slope_bytes_per_session'] / 1024:.1f} KiB",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="omni-memory-")))
            host = ENGINES[arguments.engine](arguments.model, folder)
            stack.callback(host.close)
            found = measure(
                host, sessions=arguments.sessions, units=arguments.units, warm_up=arguments.warm_up
            )
        result = {"engine": arguments.engine, "model": arguments.model or "tiny", **found}
        if arguments.json:
            arguments.json.write_text(json.dumps(result | {"machine": machine()}, indent=2) + "\n")
    except (AgentError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
