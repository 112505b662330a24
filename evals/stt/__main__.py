"""``python -m evals.stt``: measure recognisers on human speech, clean, in noise, far away and by telephone.

Each recogniser of ``--engines`` gets every chosen recording in each of ``--conditions``. Reported are word
errors with bootstrap intervals over clips, stability of partials, time to the first partial and to the final
transcript, and processor time. ``--speech mixed`` adds the installed synthetic voices of the same side, as
rows of their own; flite is on the tuning side, so that no reported figure is judged on it. A recogniser that
cannot be loaded is named with the reason. ``--set tuning`` is for choosing settings, ``--set report`` for
figures.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import AgentError, ConfigError
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.human.conditions import CONDITIONS, Surroundings
from parley.evals.human.conversations import PEAK
from parley.evals.human.generators import installed
from parley.evals.human.own_folder import load_own
from parley.evals.human.recordings import RecordedUtterance, edges_of
from parley.evals.human.split import ReportSet, SpeechSet, Split, TuningSet, load_report, load_tuning
from parley.evals.stt.figures import summary, table
from parley.evals.stt.measure import RATE_HZ, Clip, HeardClip, hear, padded
from parley.evals.stt.rows import create
from parley.evals.turns.texts import sentences
from parley.models.stt import SpeechToText

CONDITIONS_BY_DEFAULT = ("clean", "pink-20", "pink-10", "babble-10", "phone")
SYNTHETIC_SENTENCES = 20


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.stt",
        description="Measure word errors, stability, latency and cost of recognisers.",
    )
    root.add_argument("--engines", nargs="+", default=["moonshine_tiny", "pocketsphinx"])
    root.add_argument("--speech", choices=("human", "mixed"), default="human")
    root.add_argument("--set", choices=[split.value for split in Split], default=Split.REPORT.value)
    root.add_argument("--conditions", nargs="+", choices=tuple(CONDITIONS), default=CONDITIONS_BY_DEFAULT)
    root.add_argument("--language", default="en", help="ISO 639-1")
    root.add_argument("--sources", nargs="+", default=[], help="sources of the recordings; default: all")
    root.add_argument("--own", type=Path, help="folder of your own recordings to use instead")
    root.add_argument("--clips", type=positive, help="number of recordings, drawn by the seed; default: all")
    root.add_argument(
        "--longest-s", type=positive, default=60, help="longest recording; longer ones are left out"
    )
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the measurements.

    Raises:
        AgentError: recordings that were not fetched, a wrong argument, an engine that failed.
    """
    material = _material(arguments)
    spoken = {"human": _chosen(material.where(language=arguments.language, with_text=True), arguments)}
    if arguments.speech == "mixed":
        spoken["synthetic"] = list(_synthetic(material.split))
    surroundings = Surroundings(material)
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for engine in arguments.engines:
        try:
            stt = create(engine)
        except AgentError as error:
            skipped[engine] = str(error)
            say(f"{engine}: skipped: {error}")
            continue
        for kind, utterances in spoken.items():
            for condition in arguments.conditions:
                clips = _clips(utterances, condition, surroundings, arguments.seed)
                heard = _hear(stt, clips)
                rows.append(
                    {"engine": engine, "speech": kind, "condition": condition}
                    | summary(heard, arguments.seed)
                    | {"per_clip": [_as_json(each) for each in heard]}
                )
                shown = {key: value for key, value in rows[-1].items() if key != "per_clip"}
                say(json.dumps(shown))
    return {
        "set": arguments.set,
        "language": arguments.language,
        "seed": arguments.seed,
        "rows": rows,
        "left_out": skipped,
        "machine": machine(),
    }


def _material(arguments: argparse.Namespace) -> SpeechSet:
    is_tuning = Split(arguments.set) is Split.TUNING
    if arguments.own:
        tuning, report = load_own(arguments.own)
        return tuning if is_tuning else report
    return (load_tuning if is_tuning else load_report)(arguments.sources)


def _chosen(material: SpeechSet, arguments: argparse.Namespace) -> list[RecordedUtterance]:
    fitting = [one for one in material if one.duration_s <= arguments.longest_s]
    if not fitting:
        raise ConfigError(f"the {arguments.set} set has no recording with text in {arguments.language!r}")
    if arguments.clips is None or arguments.clips >= len(fitting):
        return fitting
    drawn = np.random.default_rng(arguments.seed).choice(len(fitting), arguments.clips, replace=False)
    return [fitting[int(place)] for place in sorted(drawn)]


def _synthetic(split: Split) -> Iterator[RecordedUtterance]:
    texts = sentences(held_out=split is Split.REPORT)[:SYNTHETIC_SENTENCES]
    made = [
        generator.say(voice, text)
        for generator in installed(split)
        for voice in generator.voices
        for text in texts
    ]
    yield from ReportSet(made) if split is Split.REPORT else TuningSet(made)


def _clips(
    utterances: Sequence[RecordedUtterance], condition: str, surroundings: Surroundings, seed: int
) -> Iterator[Clip]:
    for place, one in enumerate(utterances):
        rng = np.random.default_rng([seed, place])
        # The whole recording: sound that is too soft to be an edge is still audible.
        voice = one.at_rate(RATE_HZ)
        peak = float(np.abs(voice).max(initial=0.0))
        said, lead = padded(voice * (PEAK / peak) if peak else voice)
        heard = surroundings.heard(said, CONDITIONS[condition], rng, speaker=one.speaker)
        onset = lead + edges_of(one.samples, one.rate_hz)[0] * RATE_HZ // one.rate_hz
        yield Clip(one.id, condition, heard, onset, one.text, one.language)


def _hear(stt: SpeechToText, clips: Iterator[Clip]) -> list[HeardClip]:
    stream = stt.open_stream()
    try:
        return [hear(stream, clip) for clip in clips]
    finally:
        stream.close()


def _as_json(clip: HeardClip) -> dict[str, Any]:
    return {
        "id": clip.id,
        "words": len(clip.reference),
        "errors": clip.errors,
        "reference": " ".join(clip.reference),
        "transcript": " ".join(clip.transcript),
        "first_partial_ms": None if clip.first_partial_ms is None else round(clip.first_partial_ms),
        "final_ms": round(clip.final_ms),
        "final_cpu_ms": round(clip.final_cpu_ms),
        "cpu_s": round(clip.cpu_s, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: run(arguments), lambda result: table(result["rows"]))


if __name__ == "__main__":
    raise SystemExit(main())
