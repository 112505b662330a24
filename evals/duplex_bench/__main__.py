"""``python -m evals.duplex_bench``: engines against the clips of Full-Duplex-Bench, or the shipped ones.

``--speech human`` uses recorded people who pause, finish and interrupt (``recorded``). ``--speech mixed``
measures them and the clips of ``--data`` as separate sets.

Exit status 0 when everything was measured, 2 with one line on standard error for an error of the user.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from parley.configs.load import read_yaml
from parley.core.errors import ConfigError
from parley.evals.duplex_bench import recorded, report
from parley.evals.duplex_bench.clips import SHIPPED, Clip, Part, load
from parley.evals.duplex_bench.hosts import BASELINES, System, detector, known, open_host, recogniser
from parley.evals.duplex_bench.overlaps import needs_clean
from parley.evals.duplex_bench.runner import Take, play_all, step
from parley.evals.duplex_bench.scores import OVER, Heard, row
from parley.evals.duplex_bench.spoken import RATE_HZ, Segmenter, by_level, by_silero
from parley.evals.harness.command import machine, positive, quiet_log
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, percentile, run_command
from parley.evals.human.callers import SpeechKind, add_speech_option, open_callers
from parley.evals.human.hesitations import HesitationLaw
from parley.evals.latency.figures import LONGEST_PAUSE_MS
from parley.models.omni import OMNI
from parley.models.vad import VoiceActivityDetector

AT_ONCE = 4
RECORDED, RECORDED_CLIPS = "recorded people", 24
# At the end of the longest pause an answer would still be too early.
CALLERS = HesitationLaw(per_turn=1.0, longest_ms=LONGEST_PAUSE_MS)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.duplex_bench",
        description="Benchmark full-duplex engines with callers who pause, finish, interrupt and "
        "backchannel.",
    )
    root.add_argument(
        "--engine",
        action="append",
        default=[],
        help="engine to measure, in addition to the baselines; may be repeated",
    )
    root.add_argument("--settings", type=Path, help="YAML file of settings by engine")
    root.add_argument("--data", type=Path, default=SHIPPED, help="folder of clips; default: the shipped ones")
    root.add_argument(
        "--part",
        default="",
        help=f"parts to run, separated by commas: {', '.join(part.value for part in Part)}",
    )
    root.add_argument("--clips", type=positive, help="most clips of each task")
    root.add_argument("--at-once", type=positive, default=AT_ONCE, help="clips played in parallel")
    root.add_argument(
        "--segments", choices=("silero", "level"), default="silero", help="detector of the bot's voice"
    )
    root.add_argument("--seed", type=int, default=1, help="seed of random backchannels and recordings")
    add_speech_option(root)
    add_outputs(root, with_table=False)
    root.add_argument("--out", type=Path, help="folder for WAV files: caller left, bot right")
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the requested measurement; with mixed speech ``human`` holds the same of recorded people.

    Raises:
        AgentError: an error of the user, or an engine that failed.
    """
    # A ``package.module:Class`` is an engine too.
    unknown = sorted(name for name in arguments.engine if name not in known() and name not in OMNI)
    if unknown:
        raise ConfigError(f"unknown engine {unknown[0]!r}", known=known())
    settings, vad = _settings(arguments.settings), detector()
    parts = _parts(arguments.part)
    sets: dict[str, Sequence[Clip]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.speech is not SpeechKind.HUMAN:
            sets["shipped" if arguments.data == SHIPPED else str(arguments.data)] = load(
                arguments.data, parts, most=arguments.clips
            )
        if arguments.speech is not SpeechKind.SYNTHETIC:
            callers = open_callers(SpeechKind.HUMAN, law=CALLERS, own=arguments.own_speech)
            recorded.write(Path(folder), callers, arguments.clips or RECORDED_CLIPS, arguments.seed)
            chosen = [part for part in parts if part in recorded.PARTS]
            sets[RECORDED] = load(Path(folder), chosen)
        measured = [_set(name, clips, settings, vad, arguments) for name, clips in sets.items()]
    return measured[0] if len(measured) == 1 else measured[0] | {"human": measured[1]}


def _set(
    name: str,
    clips: Sequence[Clip],
    settings: Mapping[str, Mapping[str, Any]],
    vad: VoiceActivityDetector,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    segments = by_silero(vad) if arguments.segments == "silero" else by_level
    rows = []
    for engine in dict.fromkeys((*arguments.engine, *BASELINES)):
        system = open_host(engine, settings.get(engine), vad=vad, seed=arguments.seed)
        try:
            rows.append(_measured(system, clips, vad, segments, arguments))
        finally:
            system.host.close()
    return {
        "data": name,
        "segments": arguments.segments,
        "at_once": arguments.at_once,
        "seed": arguments.seed,
        "systems": rows,
        "machine": machine(),
    }


def _parts(text: str) -> tuple[Part, ...]:
    if not text:
        return tuple(Part)
    by_name = {part.value: part for part in Part}
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ConfigError(f"unknown part {unknown[0]!r}", known=tuple(by_name))
    return tuple(by_name[name] for name in names)


def _settings(path: Path | None) -> Mapping[str, Mapping[str, Any]]:
    if path is None:
        return {}
    value = read_yaml(path)
    if not all(isinstance(each, dict) for each in value.values()):
        raise ConfigError(f"{path} has no settings by engine")
    return value


def _measured(
    system: System,
    clips: Sequence[Clip],
    vad: VoiceActivityDetector,
    segments: Segmenter,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Return the row of a system. Doubtful clips are played once more as their clean twin,
    without the event.
    """
    takes = _takes(system, [(clip, None) for clip in clips], vad, arguments)
    has_words = any(take.words for take in takes)
    heard = [Heard(take.clip, take.spoken(segments, has_words=has_words)) for take in takes]
    doubtful = [
        each.clip
        for each in heard
        if each.clip.part in (*OVER, Part.INTERRUPTION)
        and each.clip.event is not None
        and needs_clean(each.clip.event, each.spoken)
    ]
    clean = _takes(system, [(clip, clip.clean_audio(RATE_HZ)) for clip in doubtful], vad, arguments)
    words = {take.clip.name: tuple(word.text for word in take.words) for take in clean}
    heard = [Heard(each.clip, each.spoken, words.get(each.clip.name)) for each in heard]
    if arguments.out is not None:
        for take in takes:
            _keep(arguments.out / system.name, take)
    figures = row(system.name, heard, seed=arguments.seed)
    for verdict, take in zip(figures["per_clip"], takes, strict=True):
        verdict |= {"understood": list(take.understood), "holes": take.holes}
    figures["judged_by"] = "words" if has_words else "voice"
    figures["ticks"] = _ticks(takes)
    figures["clean_runs"] = len(clean)
    return figures


def _takes(
    system: System,
    clips: Sequence[tuple[Clip, np.ndarray | None]],
    vad: VoiceActivityDetector,
    arguments: argparse.Namespace,
) -> list[Take]:
    if not clips:
        return []
    if system.is_stepped:
        return [step(system.host, clip, audio) for clip, audio in clips]
    return asyncio.run(_paced(system, clips, vad, arguments.at_once))


async def _paced(
    system: System, clips: Sequence[tuple[Clip, np.ndarray | None]], vad: VoiceActivityDetector, at_once: int
) -> list[Take]:
    progress = Progress(f"{system.name}, clips", len(clips))
    async with recogniser(vad) as side:
        return await play_all(
            system.host, clips, side=side, at_once=at_once, on_take=lambda take: progress.step(take.clip.name)
        )


def _ticks(takes: Sequence[Take]) -> dict[str, Any] | None:
    """Return the lateness of units; None when no unit waits for a clock."""
    late_us = [late for take in takes for late in take.late_us]
    took_us = [took for take in takes for took in take.took_us]
    if not late_us:
        return None
    words_ms = [late for take in takes for late in take.words_late_ms]
    return {
        "words_late_ms": {f"p{p}": percentile(words_ms, p) for p in (50, 95, 99)},
        "units": len(late_us),
        "missed": sum(take.missed for take in takes),
        "holes": sum(take.holes for take in takes),
        "lost_words": sum(take.lost_words for take in takes),
        "late_ms": {f"p{p}": round(float(np.percentile(late_us, p)) / 1000, 2) for p in (50, 99)},
        "took_ms": {f"p{p}": round(float(np.percentile(took_us, p)) / 1000, 2) for p in (50, 99)},
    }


def _keep(folder: Path, take: Take) -> None:
    path = folder / f"{take.clip.name}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, take.stereo(), RATE_HZ, subtype="PCM_16")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    quiet_log()
    return run_command(arguments, lambda: run(arguments), _tables)


def _tables(result: dict[str, Any]) -> str:
    table = report.table(result)
    return f"{table}\n{RECORDED}:\n\n{report.table(result['human'])}" if "human" in result else table


if __name__ == "__main__":
    raise SystemExit(main())
