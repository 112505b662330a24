"""``parley key``: a new key of an application, and the entry by which a server knows it."""

import argparse
import secrets
import sys

from parley.command.exit_status import status_of
from parley.core.errors import ConfigError
from parley.core.grants import KeyScope
from parley.serving.gateway.auth.key_entries import HASHED, LEAST_KEY_CHARS, TOKEN_SECRET_ENV, hash_of

KEY_BYTES = 24


def main(arguments: list[str]) -> int:
    """Print a key and its entry; return the exit status: 2 when the key that is read is too short."""
    parser = argparse.ArgumentParser(
        prog="parley key",
        description="Print a new key for an application, and the entry with its hash for PARLEY_CALL_KEYS or "
        f"the variable of a tenant. A server with hashed keys needs {TOKEN_SECRET_ENV} too.",
    )
    parser.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in KeyScope],
        help="what the key permits; may be repeated (default: everything)",
    )
    parser.add_argument(
        "--stdin", action="store_true", help="read the key from standard input instead of making one"
    )
    given = parser.parse_args(arguments)
    return status_of(parser.prog, lambda: _print(given))


def _print(given: argparse.Namespace) -> int:
    key = sys.stdin.readline().strip() if given.stdin else secrets.token_urlsafe(KEY_BYTES)
    if len(key) < LEAST_KEY_CHARS:
        raise ConfigError(f"expected a key of at least {LEAST_KEY_CHARS} characters on standard input")
    scopes = f"{'+'.join(dict.fromkeys(given.scope))}:" if given.scope else ""
    if not given.stdin:
        print(f"key    {key}")
    print(f"entry  {scopes}{HASHED}{hash_of(key)}")
    return 0
