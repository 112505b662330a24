"""``python -m research.turn_taking.overlaps``: sounds over the bot, with the texts for tuning.

The same calls as those of ``python -m evals.turns`` with other texts. The bounds of
``turn_taking.barge_in.settings`` were chosen on 36 of them.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from parley.evals.harness.command import exit_code, positive
from parley.evals.turns import overlap_audio
from parley.evals.turns.__main__ import table
from parley.evals.turns.overlap_calls import CallScript, Sound
from research.turn_taking import tuning_texts


class TuningCallScript(CallScript):
    """Call in which nothing is said that is part of a report."""

    held_out = False
    texts = {
        **CallScript.texts,
        Sound.COMMAND: tuning_texts.TUNING_COMMAND_TEXTS,
        Sound.CORRECTION: tuning_texts.TUNING_CORRECTION_TEXTS,
        Sound.QUESTION: tuning_texts.TUNING_QUESTION_TEXTS,
        Sound.ANSWER: tuning_texts.TUNING_ANSWER_TEXTS,
        Sound.ACKNOWLEDGEMENT: tuning_texts.TUNING_ACKNOWLEDGEMENT_TEXTS,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.overlaps")
    root.add_argument("--calls", type=positive, default=36)
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    arguments = root.parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        AgentError: an engine is not installed or failed.
    """
    figures = {}
    for ducked_by in (None, *overlap_audio.DUCKING):
        trials = overlap_audio.measure(
            arguments.calls,
            arguments.seed,
            processes=arguments.processes,
            ducked_by=ducked_by,
            script=TuningCallScript,
        )
        names = [name for name in overlap_audio.POLICIES if name not in overlap_audio.DUCKING]
        for name in [ducked_by] if ducked_by else names:
            figures[name] = overlap_audio.judge(name, trials)
    print(table({"barge_in": {"policies": figures}}))
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
