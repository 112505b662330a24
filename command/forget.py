"""``parley forget``: everything of a person is removed by the running server, and the totals are printed."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from parley.command import options
from parley.command.exit_status import status_of
from parley.core.errors import ConfigError, PeerError

EXIT_LEFT = 1
PATH = "/api/people/forget"
# A request deletes hundreds of sessions, and at each waits for S3, and two seconds for a worker that does not
# answer.
WITHIN_S = 1_800.0
# Requests for one person: each takes hundreds of sessions.
MOST_REQUESTS = 100
STDIN = "-"
PERSON = ("number", "user", "owner", "session")


def main(arguments: list[str]) -> int:
    """Forget a person; return 0, 1 when something is left, or 2 when the request is refused."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    return status_of(parser.prog, lambda: _forget(given))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="parley forget",
        description="Remove everything of a person: sessions with their events, voiceprints, comments, links "
        "and tags, recordings here and in S3, what workers and the server keep of them. Their calls end. A "
        "running server does it; its operator's token is that of PARLEY_ADMIN_TOKEN or of the deployment's "
        "data folder.",
        epilog="Exit status: 0 when nothing is left, 1 when something must be removed by hand, 2 when the "
        "command is wrong or the server refuses.",
    )
    person = parser.add_mutually_exclusive_group(required=True)
    person.add_argument("--number", metavar="NUMBER", help=f"telephone number; {STDIN} reads it from stdin")
    person.add_argument("--user", metavar="NAME", help=f"user of an application; {STDIN} reads it from stdin")
    person.add_argument("--owner", metavar="OWNER", help="owner of sessions, as the store has it")
    person.add_argument(
        "--session", metavar="ID", help="a session; those of its numbers and of its owner go with it"
    )
    parser.add_argument("--called", metavar="NUMBER", help="number that was called; default: phone.number")
    parser.add_argument(
        "--tenant",
        metavar="NAME",
        help="tenant whose applications have the user; needed where several tenants have keys",
    )
    parser.add_argument(
        "--linked",
        action="store_true",
        help="also sessions that share a number or an owner with one that is found, and so on",
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, and count what the store has")
    parser.add_argument("--server", metavar="URL", help="running server; default: that of the deployment")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    options.add_config(parser)
    return parser


def _forget(given: argparse.Namespace) -> int:
    url, token = _server_of(given)
    body = _body_of(given)
    forgotten = _Totals()
    for _ in range(MOST_REQUESTS):
        answer = _asked(url, token, body)
        forgotten.add(answer)
        if given.dry_run or not answer.get("more") or answer.get("error"):
            break
    forgotten.show(as_json=given.json, dry_run=given.dry_run)
    return EXIT_LEFT if forgotten.has_left else 0


def _server_of(given: argparse.Namespace) -> tuple[str, str]:
    """Return the address of the server, and the operator's token.

    Raises:
        ConfigError: the deployment cannot be read, or has no token.
    """
    from parley.command.doctor.machine import local_address
    from parley.configs.load import load_deployment
    from parley.serving.gateway.auth.admin_token import operator_token
    from parley.serving.gateway.settings import ADMIN_TOKEN_ENV

    token = os.environ.get(ADMIN_TOKEN_ENV, "")
    if given.server and token:
        return given.server, token
    deployment = load_deployment(given.config)
    return (
        given.server or local_address(deployment.server),
        token or operator_token(deployment.operations.data_dir).text,
    )


def _body_of(given: argparse.Namespace) -> dict[str, object]:
    named = {name: getattr(given, name) for name in PERSON if getattr(given, name) is not None}
    # Not in the list of processes, and not in the history of a shell.
    named = {name: sys.stdin.readline().strip() if value == STDIN else value for name, value in named.items()}
    more = {name: getattr(given, name) for name in ("called", "tenant") if getattr(given, name) is not None}
    return {**named, **more, "linked": given.linked, "dry_run": given.dry_run}


def _asked(url: str, token: str, body: Mapping[str, object]) -> dict[str, Any]:
    """Send one request; return its answer.

    Raises:
        ConfigError: the server is not reached, or refuses.
    """
    request = urllib.request.Request(
        f"{url.rstrip('/')}{PATH}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
            return _read(response.read())
    except urllib.error.HTTPError as error:
        answer = _read(error.read())
        if "removed" in answer:
            # What is left is named.
            return answer
        raise ConfigError(f"{url} refuses ({error.code}): {answer.get('error')}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"{url} is not reached ({reason}): start the server, or name it with --server"
        ) from error
    except PeerError as error:
        raise ConfigError(f"{url}: {error}") from error


def _read(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise PeerError("this is no Parley server, or one of an earlier release")
    return answer


class _Totals:
    """Answers to the requests for one person, together."""

    def __init__(self) -> None:
        self._sessions: list[str] = []
        self._removed: dict[str, int] = {}
        self._pending: dict[str, None] = {}
        self._error = ""
        self._more = False

    @property
    def has_left(self) -> bool:
        """True when something must be removed by hand, or by another run."""
        return bool(self._error) or self._more

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add an answer."""
        self._sessions += answer["sessions"]
        for kind, count in _flat(answer["removed"]).items():
            self._removed[kind] = self._removed.get(kind, 0) + count
        self._pending |= dict.fromkeys(answer["pending"])
        self._error, self._more = str(answer.get("error", "")), bool(answer["more"])

    def show(self, *, as_json: bool, dry_run: bool) -> None:
        """Print the totals."""
        if as_json:
            facts = {
                "sessions": self._sessions,
                "removed": self._removed,
                "pending": list(self._pending),
                "more": self._more,
                "error": self._error or None,
                "dry_run": dry_run,
            }
            print(json.dumps(facts))
            return
        print("would be removed from the store:" if dry_run else "removed:")
        width = max(map(len, self._removed))
        for kind, count in self._removed.items():
            print(f"  {kind:{width}}  {count}")
        for text in self._pending:
            print(f"pending: {text}")
        if self._more:
            print("sessions are left: run the command again")
        if self._error:
            print(f"parley forget: {self._error}", file=sys.stderr)


def _flat(removed: Mapping[str, Any]) -> dict[str, int]:
    """Return totals with the parts of recordings as kinds of their own."""
    recordings = {f"recorded {kind}": count for kind, count in removed["recordings"].items()}
    return {
        **{kind.replace("_", " "): count for kind, count in removed.items() if kind != "recordings"},
        **recordings,
    }
