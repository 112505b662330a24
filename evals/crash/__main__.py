"""``python -m evals.crash --kills 50``: SIGKILL at random moments of conversations.

Each round holds a conversation (a fact, tool calls with effects outside, small talk; with ``--voice`` a call
of the same session at the same time). It kills the server in a phase that is drawn, starts it again, and
checks:

* that every acknowledged event is in the timeline, once, in its order, with no number missing;
* that no effect took place twice, even when the unanswered message is sent again with the same key;
* that the reopened session has the fact that was given before the kill, by text and in a new call.

With ``--calls`` it breaks calls instead, each in the middle of a reply: it kills the server of phone calls
(``calls``) or of a page in a browser, or takes the page's network away for five seconds (``pages``). With
``--calls line`` it kills the process of the conversations alone, while the bot or the caller speaks
(``lines``). Every call must go on in its session with no word lost or repeated.

Status 0: all of that holds; 1: it does not; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
from collections.abc import Sequence

from parley.core.errors import ConfigError
from parley.evals.crash.calls import FALLBACK, PROXY, CallFindings, run_calls
from parley.evals.crash.lines import LINE, LineFindings, run_lines
from parley.evals.crash.pages import DROP, KILL, run_pages
from parley.evals.crash.rounds import run
from parley.evals.harness.command import exit_code, machine, positive, positive_number
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, check_outputs, publish


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.crash",
        description="Kill a server with SIGKILL at random moments of conversations.",
    )
    root.add_argument("--kills", type=positive, default=50)
    root.add_argument(
        "--minutes", type=positive_number, help="begin no conversation after this time; default: no limit"
    )
    root.add_argument("--seed", type=int, default=1)
    root.add_argument(
        "--store", metavar="URL", help="address of an empty or test database; default: a new SQLite file"
    )
    root.add_argument("--voice", action="store_true", help="keep a call of the same session in progress")
    root.add_argument(
        "--calls",
        choices=(PROXY, FALLBACK, LINE, KILL, DROP),
        help="kill the server of phone calls, which the network reaches again by a proxy that waits, or by "
        "the number's fallback document; kill the process of their conversations alone (line); kill the "
        "server of a page in a browser; or let no packet of a page pass",
    )
    root.add_argument("--callers", type=positive, help="with --calls line: calls at each kill (default: 1)")
    add_outputs(root, with_table=False)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a requirement is broken, 2 after printing one line to standard error."""
    options = parser().parse_args(argv)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_outputs(options)
    if options.callers is not None and options.calls != LINE:
        raise ConfigError("--callers is for --calls line")
    if options.calls is not None:
        return _run_calls(options)
    within_s = None if options.minutes is None else 60 * options.minutes
    findings = asyncio.run(
        run(options.kills, options.seed, store=options.store, voice=options.voice, within_s=within_s)
    )
    figures = {**findings.as_json(), "seed": options.seed, "machine": machine()}
    publish(options, figures, lambda _figures: findings.table())
    for detail in [*findings.refused, *findings.details]:
        say(detail)
    return 0 if findings.passed() else 1


async def _broken_calls(options: argparse.Namespace) -> CallFindings | LineFindings:
    kills, seed, store = options.kills, options.seed, options.store
    if options.calls == LINE:
        return await run_lines(kills, seed, callers=options.callers or 1, store=store)
    if options.calls in (KILL, DROP):
        return await run_pages(kills, seed, breaks=options.calls, store=store)
    return await run_calls(kills, seed, network=options.calls, store=store)


def _run_calls(options: argparse.Namespace) -> int:
    if options.voice or options.minutes is not None:
        raise ConfigError(
            "--calls has calls of its own, and no limit of time: leave out --voice and --minutes"
        )
    calls = asyncio.run(_broken_calls(options))
    publish(
        options,
        {**calls.as_json(), "seed": options.seed, "machine": machine()},
        lambda _figures: calls.table(),
    )
    for detail in calls.details:
        say(detail)
    return 0 if calls.passed() else 1


if __name__ == "__main__":
    raise SystemExit(main())
