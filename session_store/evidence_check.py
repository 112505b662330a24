"""``python -m session_store.evidence_check SESSION``: verify the signed evidence of a session.

Prints the number of entries, the keys that signed them, and what does not hold. Read-only.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from parley.core.errors import AgentError
from parley.session_store.evidence import READ, Verified, verify
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader


async def verify_session(store: SessionReader, session_id: str, *, trusted: str | None = None) -> Verified:
    """Verify the evidence of a stored session.

    Args:
        store: of the session.
        session_id: of the session.
        trusted: public key that must have signed; None accepts those that the entries name.

    Raises:
        StoreError: there is no such session, or it cannot be read.
    """
    events = await store.all_events(session_id, kinds=READ)
    # Two signatures are verified in a millisecond: a long session has thousands.
    return await asyncio.to_thread(verify, session_id, events, trusted=trusted)


async def _main(session_id: str, settings: StoreSettings, trusted: str | None) -> Verified:
    store = await SessionReader.open(settings)
    try:
        return await verify_session(store, session_id, trusted=trusted)
    finally:
        await store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 where all holds, 1 where something does not, 2 for a failure to verify."""
    parser = argparse.ArgumentParser(
        prog="python -m session_store.evidence_check", description=__doc__.split("\n")[0]
    )
    parser.add_argument("session", help="id of the session")
    parser.add_argument(
        "--url",
        default=os.environ.get("PARLEY_STORE_URL", StoreSettings().url),
        help="address of the session store (default: $PARLEY_STORE_URL, or sessions/sessions.db here)",
    )
    parser.add_argument("--signer", help="public key that must have signed each entry, in hexadecimal digits")
    options = parser.parse_args(arguments)
    try:
        found = asyncio.run(_main(options.session, StoreSettings(url=options.url), options.signer))
    except AgentError as error:
        print(f"evidence_check: {error}", file=sys.stderr)
        return 2
    print(f"{found.entries} entries, signed by {', '.join(found.signers) or 'no key'}")
    for problem in found.problems:
        print(problem)
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
