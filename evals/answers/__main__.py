"""``python -m evals.answers``: measure the embedded answerer on 100 golden questions.

There are three document sets: the bank of ``knowledge/``, the product's own documents (a copy, so that
editing them does not move the figure) and a technical manual with tables and negations. Rules and limits are
chosen on ``golden/tuning.json`` and ``golden/practice.json``. ``golden/report.json`` gives the reported
figure. Its questions were written before the code that they judge, and its failures are not printed, so that
the code is not tuned on them. ``golden/noise_*.json`` have more turns that are no question in the language of
the documents.

``--spoken`` has voices speak the questions to a recogniser. The voices are those of other generators than the
bot's, and the bot's own, clean and over a telephone line. It prints right and reversed answers, turns asked
back and word errors of each voice. Turns without a question come from people (speech in other languages,
coughs, shouts) and from the voices. ``--set tuning`` uses the tuning half and the voices that tune, and
prints the failures.

``--heard FILE`` reads the words of a recogniser: JSON, an object that maps written to recognised texts.
``--turns`` prints the turns that can be read aloud. ``--word-errors RATE`` simulates a recogniser with real
confusions.
"""

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.evals.answers import spoken
from parley.evals.answers.asking import Examiner, HeardTurn, Tally, load_models, read_golden
from parley.evals.answers.scoring import NOT_UNDERSTOOD
from parley.evals.answers.word_errors import WordErrors, confusions
from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, check_outputs, publish, run_command
from parley.evals.human.conditions import CONDITIONS
from parley.evals.human.split import Split

SETS = ("tuning", "report", "noise_tuning", "noise_report")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.answers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--heard", type=Path, help="JSON file with the recogniser's transcript of each written turn"
    )
    parser.add_argument(
        "--word-errors",
        type=float,
        default=0.0,
        metavar="RATE",
        help="share of word errors to simulate, 0 to 1",
    )
    parser.add_argument(
        "--turns", action="store_true", help="print the turns to give to a recogniser, as JSON"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the word errors")
    parser.add_argument(
        "--spoken", action="store_true", help="synthesise the questions and transcribe them with a recogniser"
    )
    parser.add_argument("--set", choices=[split.value for split in Split], default=Split.REPORT.value)
    parser.add_argument(
        "--conditions",
        nargs="+",
        choices=tuple(CONDITIONS),
        default=["clean", "phone"],
        help="line conditions for --spoken",
    )
    parser.add_argument("--engine", default="moonshine_tiny", help="recogniser for --spoken")
    parser.add_argument(
        "--voices", nargs="+", default=[], help="speech generators for --spoken; default: all"
    )
    parser.add_argument("--questions", type=positive, help="questions of the half for --spoken; default: all")
    add_outputs(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the evaluation; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(arguments)
    if given.turns:
        print(json.dumps(spoken_turns(), indent=2, ensure_ascii=False))
        return 0
    if given.spoken:
        return exit_code(lambda: _spoken(given))
    return run_command(given, lambda: asyncio.run(_measure(given)))


def spoken_turns() -> list[str]:
    """Return the turns of both halves that can be read aloud to a recogniser, each once."""
    rows = [*read_golden("tuning"), *read_golden("report")]
    return list(dict.fromkeys(turn for row in rows if row.kind not in NOT_UNDERSTOOD for turn in row.turns))


def channel(given: argparse.Namespace) -> Callable[[str], HeardTurn]:
    """Return the function from written to recognised turns that the command line selects."""
    if given.heard is not None:
        heard: dict[str, str] = json.loads(given.heard.read_text(encoding="utf-8"))
        return lambda text: HeardTurn(heard.get(text, text))
    if given.word_errors:
        errors = WordErrors(confusions(), rate=given.word_errors, seed=given.seed)
        return lambda text: HeardTurn(errors.hear(text))
    return HeardTurn


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    examiner = Examiner(await asyncio.to_thread(load_models))
    hear = channel(given)
    figures: dict[str, Any] = {}
    for half in SETS:
        say(f"questions of the half {half}")
        tally = await examiner.run(read_golden(half), hear)
        figures[half] = tally.figures()
        if not half.endswith("report"):
            _print_failures(tally)
    return figures | {"machine": machine()}


def _spoken(given: argparse.Namespace) -> int:
    check_outputs(given)
    split = Split(given.set)
    rows: list[spoken.Row] = []
    for row in spoken.measure(
        split,
        engine=given.engine,
        conditions=[CONDITIONS[name] for name in given.conditions],
        voices=given.voices,
        questions=given.questions,
        seed=given.seed,
    ):
        rows.append(row)
        say(f"{row.voice}, {row.condition}: {row.figures()}")
        if split is Split.TUNING:
            _print_failures(row.tally)
            if row.noise is not None:
                _print_failures(row.noise)
    figures = {"set": split.value, "engine": given.engine, "rows": [row.figures() for row in rows]}
    return publish(given, {**figures, "machine": machine()}, lambda _figures: spoken.table(rows))


def _print_failures(tally: Tally) -> None:
    for question, answer in tally.failures:
        say(f"not right: {question}\n           {answer}")


if __name__ == "__main__":
    raise SystemExit(main())
