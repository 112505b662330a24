"""``python -m evals.perception.speakers``: measure the diarization of two-speaker mixes of recorded people.

Each pair of speakers of one side of ``evals.human`` takes turns of 1 to 4 s, cut from their recordings, for
``--turns`` turns in a drawn order. The turns are cut into stretches as in a call, at most 2 s long, and the
specialist names the speaker of each. Names are mapped onto speakers in the way that is best for each mix, as
the diarization error rate of NIST does; voice without a name is an error. There is no overlap in these mixes.
Overlap is measured in others: after every second turn, the two speak at once for one stretch, the second one
up to 6 dB louder or softer and for all, three quarters or half of it.

Printed are the error of all mixes without overlap and the number of speakers found, also for one speaker
alone, and the stretches of one and of two voices that name two. Actors of exclamations count apart: one of
them is meant to sound like several.

With ``--calls`` a mix is divided into calls of one session. A call begins with the voiceprints of the one
before, and one mapping of names counts for all of them.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.core.timeline import KnownVoice
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.human.recordings import RecordedUtterance, edges_of
from parley.evals.human.split import Split, load_report, load_tuning
from parley.evals.perception.prosody import by_voice
from parley.models.specialists import VoiceStretch
from parley.models.specialists.speakers import RATE_HZ, SpeakerSettings, SpeakerSpecialist
from parley.processors.fusion.voice_specialists import LONGEST_MS

LEAST_TURN_S, MOST_TURN_S = 1.0, 4.0
# Both voices at once: length of a stretch, level of the second voice against the first, and its part of it.
LEAST_BOTH_S, MOST_BOTH_DB, BOTH_SHARES = 1.0, 6.0, (1.0, 0.75, 0.5)
# A speaker with less voice than this cannot take part.
LEAST_VOICE_S = 8.0
ACTED = "exclaims"


def voices(split: Split) -> dict[str, np.ndarray]:
    """Return each speaker's voice without the silence around recordings: float32, (samples,)."""
    load = load_report if split is Split.REPORT else load_tuning
    found = {}
    for speaker, utterances in by_voice(load()).items():
        audio = np.concatenate([_voice(each) for each in utterances[:60]])
        if len(audio) >= LEAST_VOICE_S * RATE_HZ:
            found[speaker] = audio
    return found


def _voice(utterance: RecordedUtterance) -> np.ndarray:
    audio = utterance.at_rate(RATE_HZ)
    began, ended = edges_of(audio, RATE_HZ)
    return audio[began:ended].astype(np.float32)


def mix(pair: Sequence[np.ndarray], turns: int, drawn: np.random.Generator) -> list[tuple[int, np.ndarray]]:
    """Return the stretches of a mix, each with the place of its speaker."""
    stretches = []
    longest = LONGEST_MS * RATE_HZ // 1000
    for turn in range(turns):
        who = turn % len(pair)
        length = int(drawn.uniform(LEAST_TURN_S, MOST_TURN_S) * RATE_HZ)
        at = int(drawn.integers(0, max(1, len(pair[who]) - length)))
        audio = pair[who][at : at + length]
        stretches += [(who, audio[place : place + longest]) for place in range(0, len(audio), longest)]
    return stretches


def both(pair: Sequence[np.ndarray], drawn: np.random.Generator) -> np.ndarray:
    """Return a stretch in which two people speak at once: float32, (samples,)."""
    length = int(drawn.uniform(LEAST_BOTH_S, LONGEST_MS / 1000) * RATE_HZ)
    first, second = (
        voice[(at := int(drawn.integers(0, max(1, len(voice) - length)))) : at + length] for voice in pair
    )
    level = 10 ** (drawn.uniform(-MOST_BOTH_DB, MOST_BOTH_DB) / 20)
    second = second * np.float32(level * _rms(first) / max(_rms(second), 1e-9))
    added = second[: int(length * drawn.choice(BOTH_SHARES))]
    begins = int(drawn.integers(0, len(first) - len(added) + 1))
    mixed = first.copy()
    mixed[begins : begins + len(added)] += added
    return mixed


def _rms(audio: np.ndarray) -> float:
    return float(np.sqrt(np.mean(audio * audio)))


def heard_together(
    specialist: SpeakerSpecialist, pair: Sequence[np.ndarray], turns: int, drawn: np.random.Generator
) -> dict[str, int]:
    """Count the stretches of a mix with overlap, and those that were taken for two voices at once."""
    stream = specialist.open_stream()
    counts = dict.fromkeys(("both", "both_found", "one", "one_taken_for_both"), 0)
    stretches: list[tuple[bool, np.ndarray]] = []
    for number in range(0, turns, 2):
        stretches += [(False, audio) for _, audio in mix(pair, 2, drawn)]
        # The first turns make the two known.
        stretches += [(True, both(pair, drawn))] if number else []
    for is_both, audio in stretches:
        found = stream.judge(VoiceStretch(audio, 0, 1))
        if not found:
            continue
        is_found = any(each.speaker is not None and each.speaker.also is not None for each in found)
        counts["both" if is_both else "one"] += 1
        counts["both_found" if is_both else "one_taken_for_both"] += is_found
    return counts


def judged(
    specialist: SpeakerSpecialist, stretches: Sequence[tuple[int, np.ndarray]], calls: int = 1
) -> tuple[float, float, int]:
    """Return the seconds of error, the seconds of voice and the number of speakers found in a mix."""
    stream = specialist.open_stream()
    shares: dict[tuple[int, str], float] = {}
    heard: dict[str, KnownVoice] = {}
    known: tuple[KnownVoice, ...] = ()
    total = 0.0
    call_length = -(-len(stretches) // calls)
    for number, (who, audio) in enumerate(stretches):
        if number and number % call_length == 0:
            stream, known = specialist.open_stream(), tuple(heard.values())
        seconds = len(audio) / RATE_HZ
        total += seconds
        given, known = known, ()
        for finding in stream.judge(VoiceStretch(audio, 0, 1, given)):
            if finding.voice is not None:
                heard[finding.voice.speaker_id] = finding.voice
            if finding.speaker is not None:
                key = who, finding.speaker.speaker_id
                shares[key] = shares.get(key, 0.0) + seconds
    speakers = sorted({who for who, _ in stretches})
    names = sorted({name for _, name in shares})
    padded = [*names, *[""] * len(speakers)]
    right = max(
        (
            sum(shares.get(pair, 0.0) for pair in zip(speakers, chosen, strict=True))
            for chosen in itertools.permutations(padded, len(speakers))
        ),
        default=0.0,
    )
    return total - right, total, len(names)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception.speakers",
        description="Measure how well the speakers of two-speaker mixes are distinguished.",
    )
    root.add_argument("--set", choices=[each.value for each in Split], default=Split.REPORT.value)
    root.add_argument("--turns", type=positive, default=20, help="turns of each mix")
    root.add_argument(
        "--calls", type=positive, default=1, help="calls of one session that a mix is divided into"
    )
    root.add_argument("--same-from", type=float, help="limit of the specialist; default: its own")
    root.add_argument("--models-dir", type=Path, default=Path("models-cache"))
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Judge the mixes and return the JSON.

    Raises:
        AgentError: recordings or weights are missing.
    """
    settings = SpeakerSettings(models_dir=arguments.models_dir, voiceprints=arguments.calls > 1)
    if arguments.same_from is not None:
        settings = settings.model_copy(update={"same_from": arguments.same_from})
    specialist = SpeakerSpecialist(settings)
    known = voices(Split(arguments.set))
    if len(known) < 2:
        raise ConfigError("two speakers are needed")
    drawn = np.random.default_rng(arguments.seed)
    result: dict[str, Any] = {"voices": sorted(known)}
    for kind, chosen in (
        ("plain", [name for name in known if not name.startswith(ACTED)]),
        ("with_actors", sorted(known)),
    ):
        pairs = [
            pair
            for pair in itertools.combinations(sorted(chosen), 2)
            if kind == "plain" or any(name.startswith(ACTED) for name in pair)
        ]
        progress = Progress(f"mixes of {kind.replace('_', ' ')} voices", 2 * len(pairs) + len(chosen))
        found: list[tuple[float, float, int]] = []
        alone: list[tuple[float, float, int]] = []
        together: list[dict[str, int]] = []
        for pair in pairs:
            turns = mix([known[name] for name in pair], arguments.turns, drawn)
            found.append(judged(specialist, turns, arguments.calls))
            progress.step(" and ".join(pair))
        for name in chosen:
            alone.append(judged(specialist, mix([known[name]], arguments.turns, drawn)))
            progress.step(f"{name} alone")
        for pair in pairs:
            voices_of = [known[name] for name in pair]
            together.append(heard_together(specialist, voices_of, arguments.turns, drawn))
            progress.step(f"{' and '.join(pair)} at once")
        result[kind] = {
            "overlap": {name: sum(each[name] for each in together) for name in together[0]},
            "mixes": len(pairs),
            "error": round(
                sum(wrong for wrong, _, _ in found) / max(sum(all_s for _, all_s, _ in found), 1e-9), 4
            ),
            "speakers_found": round(float(np.mean([count for _, _, count in found])), 2) if found else None,
            "found_of_one": round(float(np.mean([count for _, _, count in alone])), 2) if alone else None,
            "worst": sorted(
                (
                    (round(wrong / all_s, 3), "+".join(pair))
                    for pair, (wrong, all_s, _) in zip(pairs, found, strict=True)
                ),
                reverse=True,
            )[:3],
        }
    result["settings"] = {
        "set": arguments.set,
        "turns": arguments.turns,
        "seed": arguments.seed,
        "calls": arguments.calls,
        "same_from": settings.same_from,
    }
    return {**result, "machine": machine()}


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a table."""
    rows = [
        f"| {kind.replace('_', ' ')} | {one['mixes']} | {one['error']:.1%} | {one['speakers_found']} "
        f"| {one['found_of_one']} | {'; '.join(f'{pair} {error:.0%}' for error, pair in one['worst'])} |"
        for kind, one in ((kind, result[kind]) for kind in ("plain", "with_actors"))
    ]
    overlaps = [_overlap_row(kind, result[kind]["overlap"]) for kind in ("plain", "with_actors")]
    return "\n".join(
        (
            "| voices | mixes | diarization error | speakers found, of 2 | found, of 1 | worst |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "| voices | stretches of both at once | found | of one | taken for both |",
            "|---|---|---|---|---|",
            *overlaps,
        )
    )


def _overlap_row(kind: str, counts: Mapping[str, int]) -> str:
    found = counts["both_found"] / max(counts["both"], 1)
    wrong = counts["one_taken_for_both"] / max(counts["one"], 1)
    return (
        f"| {kind.replace('_', ' ')} | {counts['both']} | {counts['both_found']} ({found:.1%}) "
        f"| {counts['one']} | {counts['one_taken_for_both']} ({wrong:.1%}) |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: measure(arguments), table)


if __name__ == "__main__":
    sys.exit(main())
