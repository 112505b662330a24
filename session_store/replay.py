"""``python -m session_store.replay SESSION``: play a stored timeline back through the sequencer.

A call's journal holds the input of its sequencer; its annotations are the output, in order. The sequencer is
a function of its settings and its operations, and virtual time consists only of the times in the journal. The
same order must therefore come out again. The first difference is reported: it is a bug in the sequencer, in
the journal or in the stored data.

Read-only: claims no session, migrates nothing, and creates or changes no file.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.core.errors import AgentError, StoreError
from parley.sequencer.merge import Committed, Sequencer, SequencerSettings
from parley.sequencer.operations import Operation, from_json
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader

OF_PERCEPTION = (Kind.JOURNAL, Kind.ANNOTATION)
# Committed report as far as its order matters: place, statement, stream, event time, arrival time, identity,
# revision, final, late.
Place = tuple[int, int, str, int, int, str | None, int, bool, bool]


@dataclass
class RecordedCall:
    """Perception of one call, as the session holds it.

    Attributes:
        call_id: of the call.
        settings: of its sequencer.
        operations: input, in order.
        committed: output, in order of commit.
    """

    call_id: str
    settings: SequencerSettings | None = None
    operations: list[Operation[None]] = field(default_factory=list)
    committed: list[Place] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of the replay of one call.

    Attributes:
        call_id: of the call.
        annotations: number of annotations committed in it.
        difference: the first one, in words; None when the order is the same.
    """

    call_id: str
    annotations: int
    difference: str | None


def recorded_calls(events: Iterable[Event]) -> list[RecordedCall]:
    """Return the calls of a timeline, in order of their first event.

    Raises:
        StoreError: an invalid operation, setting or annotation.
    """
    calls: dict[str, RecordedCall] = {}
    for event in events:
        if event.kind not in OF_PERCEPTION:
            continue
        payload = event.payload
        call = calls.setdefault(str(payload.get("call_id")), RecordedCall(str(payload.get("call_id"))))
        if event.kind is Kind.ANNOTATION:
            call.committed.append(_stored_place(event))
            continue
        try:
            if "settings" in payload:
                call.settings = SequencerSettings.model_validate(payload["settings"])
            call.operations.extend(from_json(line, lambda _body: None) for line in payload["operations"])
        except (ValueError, LookupError, TypeError) as error:
            why = str(error).splitlines()[0]
            raise StoreError(f"event {event.seq}: the journal cannot be read: {why}") from error
    return list(calls.values())


def replay(call: RecordedCall) -> Replayed:
    """Replay one call and compare the order.

    Raises:
        StoreError: an operation cannot be applied.
        UnknownStreamError: an operation names a stream that never joined.
    """
    if call.settings is None:
        return Replayed(call.call_id, len(call.committed), "the journal does not begin with its settings")
    sequencer: Sequencer[None] = Sequencer(call.settings)
    try:
        again = [_place(one) for operation in call.operations for one in sequencer.apply(operation)]
    except (ValueError, TypeError) as error:
        raise StoreError(f"the journal of a call cannot be replayed: {error}") from error
    return Replayed(call.call_id, len(call.committed), _difference(call.committed, again))


def _place(one: Committed[None]) -> Place:
    return (
        one.seq,
        one.statement,
        one.stream,
        one.event_us,
        one.arrival_us,
        one.identity,
        one.revision,
        one.final,
        one.late,
    )


def _stored_place(event: Event) -> Place:
    told: Any = event.payload
    try:
        return (
            told["order"],
            told["statement"],
            told["stream"],
            event.event_us,
            event.arrival_us,
            told["identity"],
            told["revision"],
            event.final,
            told["late"],
        )
    except KeyError as error:
        raise StoreError(f"event {event.seq}: the annotation has no {error}") from error


def _difference(stored: Sequence[Place], again: Sequence[Place]) -> str | None:
    for number, (before, now) in enumerate(zip(stored, again, strict=False)):
        if before != now:
            return f"annotation {number}: stored {before}, replayed {now}"
    if len(stored) != len(again):
        return f"{len(stored)} annotations are stored, the replay gives {len(again)}"
    return None


async def replay_session(store: SessionReader, session_id: str) -> list[Replayed]:
    """Replay every call of a session.

    Raises:
        StoreError: there is no such session, or its journal cannot be read.
    """
    events = await store.all_events(session_id, kinds=OF_PERCEPTION)
    return [replay(call) for call in recorded_calls(events)]


async def _main(session_id: str, settings: StoreSettings) -> list[Replayed]:
    store = await SessionReader.open(settings)
    try:
        return await replay_session(store, session_id)
    finally:
        await store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 for equal orders, 1 for a difference, 2 for a failure to replay."""
    parser = argparse.ArgumentParser(
        prog="python -m session_store.replay", description=__doc__.split("\n")[0]
    )
    parser.add_argument("session", help="id of the session")
    parser.add_argument(
        "--url",
        default=os.environ.get("PARLEY_STORE_URL", StoreSettings().url),
        help="address of the session store (default: $PARLEY_STORE_URL, or sessions/sessions.db here)",
    )
    options = parser.parse_args(arguments)
    try:
        replayed = asyncio.run(_main(options.session, StoreSettings(url=options.url)))
    except AgentError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    for call in replayed:
        verdict = "the same order" if call.difference is None else call.difference
        print(f"call {call.call_id}: {call.annotations} annotations, {verdict}")
    if not replayed:
        print("nothing was perceived in this session: no call has a journal")
    return int(any(call.difference is not None for call in replayed))


if __name__ == "__main__":
    sys.exit(main())
