"""``python -m evals.bench batch``: offline transcription against the live path, and how it resumes.

Speed and word errors: the same human recordings are streamed to the recogniser as in a call, transcribed as
files of their own, and as long recordings that hold many of them. Seconds of audio are those of the clips in
all three, so silence between them does not make a figure better.

Kills: ``batch_kills``, with the outputs in a folder or in a bucket of a local server of S3.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.batch.manifest import MANIFEST
from parley.batch.transcript import read_transcription
from parley.core.errors import ConfigError, EngineError
from parley.core.media import float_to_pcm16
from parley.evals.bench.batch_kills import (
    DEADLINE_S,
    DESTINATIONS,
    FOLDER,
    LAST_KILL_S,
    Speech,
    kills,
    outputs_in,
    start,
    write_wav,
)
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, markdown, run_command
from parley.evals.human.conversations import PEAK
from parley.evals.human.split import Split, load_report, load_tuning
from parley.evals.stt.measure import LEAD_MS, RATE_HZ, Clip, hear, padded, word_errors
from parley.evals.stt.normalise import normalised
from parley.evals.stt.rows import create

GAP_S = 1.0
LONG_S = 180.0


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench batch", description="Measure offline transcription against the live path."
    )
    root.add_argument("--set", choices=[split.value for split in Split], default=Split.REPORT.value)
    root.add_argument("--clips", type=positive, help="number of recordings; default: all")
    root.add_argument("--kills", type=positive, default=20, help="of the second part (default: %(default)s)")
    root.add_argument(
        "--kill-within",
        type=float,
        default=LAST_KILL_S,
        metavar="SECONDS",
        help="longest delay of a kill after the start; more on a busy machine (default: %(default)s)",
    )
    root.add_argument("--files", type=positive, default=400, help="of the second part (default: %(default)s)")
    root.add_argument(
        "--destination",
        choices=DESTINATIONS,
        default=FOLDER,
        help="of the second part (default: %(default)s)",
    )
    root.add_argument("--part", choices=("speed", "kills"), help="one part only")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run both parts.

    Raises:
        AgentError: recordings that were not fetched, an engine or a job that failed.
    """
    clips = list(_speech(arguments))
    with tempfile.TemporaryDirectory(prefix="parley-batch-") as name:
        folder = Path(name)
        result: dict[str, Any] = {"set": arguments.set, "machine": machine()}
        if arguments.part != "kills":
            result["rows"] = [_live(clips), _files(clips, folder / "files"), _long(clips, folder / "long")]
        if arguments.part != "speed":
            some = [clips[place % len(clips)] for place in range(arguments.files)]
            with outputs_in(arguments.destination, folder / "killed") as outputs:
                result["kills"] = kills(
                    some,
                    folder / "kills",
                    outputs,
                    arguments.kills,
                    seed=arguments.seed,
                    within_s=arguments.kill_within,
                )
            if result["kills"]["kills"] < arguments.kills:
                raise ConfigError("the job ended before its last kill: give it more --files")
    return result


def _speech(arguments: argparse.Namespace) -> Iterable[Speech]:
    is_tuning = Split(arguments.set) is Split.TUNING
    material = (load_tuning if is_tuning else load_report)([]).where(language="en", with_text=True)
    fitting = [each for each in material if each.duration_s <= 60]
    for place, one in enumerate(fitting[: arguments.clips]):
        voice = one.at_rate(RATE_HZ)
        peak = float(np.abs(voice).max(initial=0.0))
        yield Speech(f"{place:05}.wav", padded(voice * (PEAK / peak) if peak else voice)[0], one.text)


def _live(clips: Sequence[Speech]) -> dict[str, Any]:
    stream = create("moonshine_tiny").open_stream()
    heard = []
    for each in clips:
        clip = Clip(each.name, "clean", each.samples, LEAD_MS * RATE_HZ // 1_000, each.text, "en")
        heard.append(hear(stream, clip))
    words = sum(len(clip.reference) for clip in heard)
    return _row(
        "live, streamed",
        audio_s=sum(clip.audio_s for clip in heard),
        cpu_s=sum(clip.cpu_s for clip in heard),
        errors=sum(clip.errors for clip in heard),
        words=words,
    )


def _files(clips: Sequence[Speech], folder: Path) -> dict[str, Any]:
    """Transcribe each clip as a file."""
    return _batch("batch, a file each", [[clip] for clip in clips], folder)


def _long(clips: Sequence[Speech], folder: Path) -> dict[str, Any]:
    """Transcribe recordings of ``LONG_S`` that hold clips."""
    groups: list[list[Speech]] = [[]]
    for clip in clips:
        if sum(each.seconds for each in groups[-1]) >= LONG_S:
            groups.append([])
        groups[-1].append(clip)
    return _batch("batch, long recordings", groups, folder)


def _batch(name: str, groups: Sequence[Sequence[Speech]], folder: Path) -> dict[str, Any]:
    source, out = folder / "in", folder / "out"
    source.mkdir(parents=True)
    gap = np.zeros(round(GAP_S * RATE_HZ), np.float32)
    for group in groups:
        pieces = [part for clip in group for part in (clip.samples, gap)]
        write_wav(source / group[0].name, float_to_pcm16(np.concatenate(pieces[:-1])))
    began_s = time.monotonic()
    with start(source, str(out)) as job:
        status = job.wait(DEADLINE_S)
    if status:
        raise EngineError(f"the job ended with {status}", engine="batch")
    wall_s = time.monotonic() - began_s
    errors = words = 0
    for group in groups:
        found = read_transcription(out / f"{group[0].name}.json")
        said = normalised(" ".join(clip.text for clip in group))
        errors += word_errors(said, normalised(" ".join(segment.text for segment in found.segments)))
        words += len(said)
    with sqlite3.connect(out / MANIFEST) as database:
        cpu_ms = database.execute("SELECT sum(cpu_ms) FROM items").fetchone()[0]
    audio_s = sum(clip.seconds for group in groups for clip in group)
    return _row(name, audio_s=audio_s, cpu_s=cpu_ms / 1_000, errors=errors, words=words) | {
        "wall_s_with_start": round(wall_s, 1)
    }


def _row(name: str, *, audio_s: float, cpu_s: float, errors: int, words: int) -> dict[str, Any]:
    row = {
        "path": name,
        "audio_s": round(audio_s, 1),
        "cpu_s": round(cpu_s, 1),
        "rtfx_per_core": round(audio_s / cpu_s, 1),
        "errors": errors,
        "words": words,
    }
    say(str(row))
    return row


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    parts: list[str] = []
    if "rows" in result:
        live = result["rows"][0]["rtfx_per_core"]
        head = ("path", "audio s", "CPU s", "RTFx per core", "of live", "word errors")
        rows = [
            (
                *(row["path"], row["audio_s"], row["cpu_s"], row["rtfx_per_core"]),
                f"{row['rtfx_per_core'] / live:.1f} x",
                f"{row['errors']} of {row['words']} ({100 * row['errors'] / row['words']:.1f} %)",
            )
            for row in result["rows"]
        ]
        parts.append(markdown(head, rows))
    if "kills" in result:
        seen = result["kills"]
        parts.append(
            f"{seen['kills']} kills, outputs in a {seen['destination']}: {seen['done_once']} of "
            f"{seen['files']} files done once, "
            f"{seen['done_before_the_last_run']} of them before the last run, "
            f"{seen['written_again']} written again, {seen['parked']} corrupt file parked"
        )
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: run(arguments), table)
