"""A process that writes to a session store until it is killed: ``session_store_child.py URL [SESSION]``.

With a session it claims that one; without, it creates three. Several tasks append to each, some of them
several drafts at once. Every acknowledged event is a line ``session seq key`` on standard output. A fenced
writer prints ``fenced`` and ends.
"""

import asyncio
import sys

from parley.core.errors import FencedError
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, SessionWriter, StoreTuning

TASKS = 4


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def write(writer: SessionWriter, task: int) -> None:
    number = 0
    while True:
        drafts = [
            Draft(
                Kind.USER_TURN,
                {"text": "x" * 300},
                1,
                1,
                "user",
                key=f"{writer.epoch}.{task}.{number}.{part}",
            )
            for part in range(1 + number % 3)
        ]
        for event in await writer.append(*drafts):
            say(f"{event.session_id} {event.seq} {event.key}")
        number += 1


async def main(url: str, session_ids: list[str]) -> None:
    store = await SessionStore.open(StoreTuning(url=url))
    session_ids = session_ids or [(await store.create()).id for _ in range(3)]
    writers = [await store.claim(session_id) for session_id in session_ids]
    say(f"claimed {writers[0].epoch}")
    try:
        await asyncio.gather(*(write(writer, task) for writer in writers for task in range(TASKS)))
    except FencedError:
        say("fenced")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
