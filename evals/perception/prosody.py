"""``python -m evals.perception.prosody``: measure the prosody specialist on acted and read speech.

Characters of a game, acted by people in five languages, say the same lines in their own way (the source
``exclamations`` of ``evals.human``). The name of a line says whether it is tense (a threat, an insult, a
warning) or calm (a greeting, a remark): the lists below were written from the names. A voice's lines come in
drawn orders (``--orders``), after the specialist has heard enough of them to know the voice. Printed are the
area under the curve of tense against calm lines, of loudness against the voice's own as well, and how many
lines of each kind would be called tense in a prompt. Read speech of the report side shows how often a plain
voice would.

No recordings of conversations with labelled moods are available here. The result says how well acted tension
is separated from calm, and the lines called calm are often acted too. ``--set tuning`` uses the voices that
the line was fitted on.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import SpeechSet, Split, load_report, load_tuning
from parley.models.specialists import VoiceStretch
from parley.models.specialists.prosody import RATE_HZ, ProsodySpecialist
from parley.sequencer.rendering import RenderingSettings

SOURCE = "exclamations"
TENSE = frozenset(
    "stupid traitor nutter illgetyou youllregretthat justyouwait leavemealone cutitout gonnagetyou "
    "comeonthen hurry incoming takecover watchit revenge runaway kamikaze nooo fire whatthe bugger drat "
    "thisoneismine".split()
)
CALM = frozenset(
    "hello byebye yessir boring hmm oops uh-oh missed ohdear sameteam solong firstblood enemydown melon "
    "grenade".split()
)


class Scored:
    """Scores of the lines of one kind.

    Attributes:
        tension: the specialist's score of each.
        level_db: loudness of each against the voice's own.
    """

    def __init__(self) -> None:
        self.tension: list[float] = []
        self.level_db: list[float] = []


def kind_of(utterance: RecordedUtterance) -> str | None:
    """Return "tense" or "calm" for an exclamation; None for any other."""
    name = utterance.id.rsplit("/", 1)[-1].lower()
    return "tense" if name in TENSE else "calm" if name in CALM else None


def by_voice(speech: SpeechSet) -> dict[str, list[RecordedUtterance]]:
    """Return the utterances of each speaker."""
    voices: dict[str, list[RecordedUtterance]] = defaultdict(list)
    for utterance in speech:
        voices[utterance.speaker].append(utterance)
    return dict(voices)


def score(
    voices: Mapping[str, Sequence[RecordedUtterance]], orders: int, seed: int
) -> dict[str | None, Scored]:
    """Return the scores of the lines of each kind, over drawn orders of each voice's lines."""
    found: dict[str | None, Scored] = defaultdict(Scored)
    specialist = ProsodySpecialist()
    drawn = np.random.default_rng(seed)
    progress = Progress("voices", len(voices))
    for speaker, utterances in voices.items():
        audio = [each.at_rate(RATE_HZ) for each in utterances]
        for _ in range(orders):
            stream = specialist.open_stream()
            for place in drawn.permutation(len(utterances)):
                for finding in stream.judge(VoiceStretch(audio[place], 0, 1)):
                    prosody = finding.prosody
                    if prosody is not None and prosody.stress is not None:
                        scored = found[kind_of(utterances[place])]
                        scored.tension.append(prosody.stress)
                        scored.level_db.append(prosody.level_offset_db or 0.0)
        progress.step(speaker)
    return found


def area_under_curve(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the share of pairs in which the one of ``higher`` is higher; a tie counts half."""
    above = np.asarray(higher)[:, None] - np.asarray(lower)[None]
    return float((above > 0).mean() + 0.5 * (above == 0).mean())


def called_tense(scores: Sequence[float]) -> float:
    """Return the share of scores that a prompt would show as tense."""
    return float(np.mean(np.asarray(scores) >= RenderingSettings().stress))


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception.prosody",
        description="Measure how well the prosody specialist separates tense from calm speech.",
    )
    root.add_argument("--set", choices=[each.value for each in Split], default=Split.REPORT.value)
    root.add_argument("--orders", type=positive, default=10, help="drawn orders of each voice's lines")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Score the recordings and return the JSON.

    Raises:
        AgentError: recordings are missing.
    """
    load = load_report if arguments.set == Split.REPORT.value else load_tuning
    acted = score(by_voice(load([SOURCE])), arguments.orders, arguments.seed)
    plain = {
        speaker: utterances
        for speaker, utterances in by_voice(load()).items()
        if not speaker.startswith("exclaims") and len(utterances) >= 10
    }
    read = score(plain, 1, arguments.seed)[None]
    tense, calm = acted["tense"], acted["calm"]
    return {
        "voices": len(by_voice(load([SOURCE]))),
        "tense_lines": len(tense.tension) // arguments.orders,
        "calm_lines": len(calm.tension) // arguments.orders,
        "auc": round(area_under_curve(tense.tension, calm.tension), 3),
        "auc_loudness_alone": round(area_under_curve(tense.level_db, calm.level_db), 3),
        "called_tense": {
            "tense": round(called_tense(tense.tension), 3),
            "calm": round(called_tense(calm.tension), 3),
            "read": round(called_tense(read.tension), 3) if read.tension else None,
        },
        "read_voices": len(plain),
        "read_stretches": len(read.tension),
        "settings": {"set": arguments.set, "orders": arguments.orders, "seed": arguments.seed},
        "machine": machine(),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a table."""
    called = result["called_tense"]
    read = "-" if called["read"] is None else f"{called['read']:.1%}"
    return "\n".join(
        (
            f"prosody, {result['settings']['set']} side: {result['voices']} acted voices",
            "",
            "| | area under the curve |",
            "|---|---|",
            f"| tension | {result['auc']:.3f} |",
            f"| loudness alone | {result['auc_loudness_alone']:.3f} |",
            "| chance | 0.500 |",
            "",
            "| speech | stretches | shown as tense |",
            "|---|---|---|",
            f"| acted, tense lines | {result['tense_lines']} | {called['tense']:.1%} |",
            f"| acted, calm lines | {result['calm_lines']} | {called['calm']:.1%} |",
            f"| read, {result['read_voices']} voices | {result['read_stretches']} | {read} |",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: measure(arguments), table)


if __name__ == "__main__":
    sys.exit(main())
