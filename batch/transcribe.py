"""``python -m batch.transcribe SOURCE --out DEST``, or ``parley transcribe``: audio files and calls to text.

Writes a JSON, a WebVTT and a text file for each source below DEST, and ``parked.json`` with the sources that
cannot be transcribed. A run that was interrupted or killed goes on with the same command.
"""

import argparse
import json
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import get_args

from loguru import logger

from parley.batch.destination import PARKED_FILE, Destination, OutputError
from parley.batch.jobs import BatchJob, JobResult
from parley.batch.manifest import MANIFEST
from parley.batch.places import destination_at, sources_at
from parley.batch.recogniser import EMBEDDED, check_choice, recogniser_choice
from parley.batch.settings import BatchSettings, ChannelMode, FileLimits, RecogniserChoice
from parley.batch.transcriber import check_specialist
from parley.batch.worker_process import Executor, LocalExecutor
from parley.configs.load import load_deployment, parse_settings
from parley.core.errors import AgentError, ConfigError, EngineError
from parley.core.installation import pip_command
from parley.core.yaml_text import named_values
from parley.runtime.object_store import ObjectStoreError
from parley.runtime.progress import printable, say

PROGRAM = "parley transcribe"
EXIT_ENGINE, EXIT_USAGE, EXIT_PARKED, EXIT_INTERRUPTED = 1, 2, 3, 130
MEANING = (
    "Exit status: 0 when every source is transcribed, 1 when an engine fails, the outputs cannot be "
    "written, or S3 refuses or does not answer, 2 when the command is wrong, 3 when sources are parked, 130 "
    "when interrupted."
)
# Parked sources that are listed at the end of a run.
MOST_LISTED = 10


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Transcribe a file, all audio files below a folder, or recorded calls, at low priority.",
        epilog=MEANING,
    )
    root.add_argument(
        "source",
        metavar="SOURCE",
        help="audio file, or folder of files or recordings; s3://BUCKET/PREFIX for those in a bucket",
    )
    root.add_argument(
        "--out", required=True, metavar="DEST", help="folder of the transcripts, or s3://BUCKET/PREFIX"
    )
    root.add_argument(
        "--engine",
        default=EMBEDDED,
        metavar="NAME",
        help="recogniser, as in hearing.stt (default: %(default)s)",
    )
    root.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the recogniser, with a YAML value; may be repeated",
    )
    root.add_argument("--config", metavar="DEPLOYMENT", help="take the recogniser of a deployment")
    root.add_argument(
        "--channels",
        choices=get_args(ChannelMode),
        default="auto",
        help="mix: all channels are one signal; split: each of two channels is a speaker; auto (default): "
        "split, unless both have the same sound",
    )
    root.add_argument(
        "--specialists",
        action="append",
        default=[],
        metavar="NAME",
        help="speakers: name speakers by their voices where channels are mixed; prosody: manner of speaking; "
        "may be repeated",
    )
    root.add_argument(
        "--sessions", action="store_true", help="write each transcript as a session too, for an import"
    )
    root.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes (default: one less than the cores; on a cluster one for each processor or GPU)",
    )
    root.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="run the processes on a Ray cluster: HOST:PORT of its head, or that of which this machine is a "
        "node; all nodes share SOURCE and DEST",
    )
    root.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="bound of a source, such as most_hours=2; may be repeated",
    )
    root.add_argument("--retry-parked", action="store_true", help="try parked sources again")
    return root


def transcribe(given: argparse.Namespace) -> int:
    """Run the job of a command line; return the exit status: 0, or 3 when sources are parked.

    Raises:
        ConfigError: an option or an engine's settings are wrong, or the folder is held by another run.
        EngineError: an engine does not load, or the outputs cannot be written.
        ObjectStoreError: a bucket refuses, or does not answer.
    """
    if given.workers is not None and given.workers < 1:
        raise ConfigError("--workers: at least 1")
    settings = BatchSettings(
        recogniser=_recogniser(given),
        channels=given.channels,
        specialists=tuple(given.specialists),
        sessions=given.sessions,
        limits=parse_settings(FileLimits, named_values(given.limit, option="--limit"), where="--limit"),
    )
    check_choice(settings.recogniser)
    for name in settings.specialists:
        check_specialist(name)
    root, sources = sources_at(given.source, settings.limits)
    with destination_at(given.out, settings.limits) as destination:
        destination.belong_to(root)
        items = [(source, source.key(settings)) for source in sources]
        to_do = destination.plan(items, retry_parked=given.retry_parked)
        if len(to_do) < len(sources):
            say(f"{len(sources) - len(to_do)} of {len(sources)} sources are done or parked already")
        with _executor(given.ray, settings, destination, root) as executor:
            result = BatchJob(settings, destination, executor).run(to_do, workers=given.workers)
        return _report(destination, result, {source.name for source in sources})


@contextmanager
def _executor(
    cluster: str | None, settings: BatchSettings, destination: Destination, root: str
) -> Iterator[Executor]:
    """Return what runs the workers.

    Raises:
        ConfigError: Ray is not installed, or the cluster does not answer.
    """
    if cluster is None:
        yield LocalExecutor(settings, destination)
        return
    try:
        from parley.batch.on_ray import ray_executor
    except ImportError as error:
        raise ConfigError(f"--ray needs the extra 'ray': {pip_command('ray')} ({error})") from error
    with ray_executor(cluster, settings, destination, root) as executor:
        yield executor


def _recogniser(given: argparse.Namespace) -> RecogniserChoice:
    settings = named_values(given.set, option="--set")
    if given.config is None:
        return recogniser_choice(given.engine, settings)
    if given.engine != EMBEDDED:
        raise ConfigError("--config names the recogniser: leave out --engine")
    deployment = load_deployment(given.config)
    chosen = deployment.hearing.stt
    return recogniser_choice(chosen.name, {**chosen.settings, **settings})


def _report(destination: Destination, result: JobResult, names: set[str]) -> int:
    """Write the list of parked sources and print the last lines; return the exit status."""
    parked = [each for each in destination.parked() if each.name in names]
    facts = [{"source": each.name, "reason": each.reason, "tries": each.tries} for each in parked]
    destination.write_parked((json.dumps(facts, indent=1) + "\n").encode())
    for each in parked[:MOST_LISTED]:
        print(f"parked: {printable(each.name)}: {printable(each.reason)}")
    if len(parked) > MOST_LISTED:
        print(f"parked: {len(parked) - MOST_LISTED} more, in {destination.location}/{PARKED_FILE}")
    print(f"{result.summary()}; {destination.done()} done in {destination.location}")
    return EXIT_PARKED if parked else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = parser().parse_args(arguments)
    # A service manager's stop is like Ctrl-C.
    terminated = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(ValueError):
        # loguru's own sink, if it is there, shows every level: libraries of a deployment announce themselves.
        logger.remove(0)
    sink = logger.add(lambda line: print(line, end="", file=sys.stderr), level="WARNING", diagnose=False)
    try:
        return transcribe(given)
    except (EngineError, OutputError, ObjectStoreError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_ENGINE
    except sqlite3.OperationalError as error:
        print(f"{PROGRAM}: {given.out}/{MANIFEST}: {error}; the same command goes on", file=sys.stderr)
        return EXIT_ENGINE
    except (AgentError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        logger.remove(sink)
        signal.signal(signal.SIGTERM, terminated)


if __name__ == "__main__":
    sys.exit(main())
