import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.core.errors import StoreError
from parley.sequencer.merge import Sequencer, SequencerSettings
from parley.sequencer.operations import (
    Advance,
    Heartbeat,
    Join,
    Journal,
    Learn,
    Operation,
    Report,
    StreamEnded,
    to_json,
)
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.replay import main, recorded_calls, replay
from parley.session_store.store import SessionStore, StoreTuning

OPERATIONS: list[Operation[None]] = [
    Join("stt", 80_000, 0),
    Join("vision", 200_000, 0),
    Report("stt", 180_000, None, identity="u1", final=False),
    Heartbeat("vision", 190_000),
    Advance(200_000),
    Report("vision", 310_000, None),
    Report("stt", 320_000, None, 90_000, "u1", 1, True),
    Learn("stt", 120_000),
    Advance(400_000),
    # Late: it happened before the committed events.
    Report("vision", 410_000, None, 20_000),
    Report("stt", 420_000, None, identity="u2"),
    StreamEnded("vision"),
    Advance(600_000),
]


def record(call_id: str, operations: list[Operation[None]], *, settings: bool = True) -> list[Event]:
    """Return the events that a call writes into its session."""
    chosen = SequencerSettings()
    sequencer, journal, events = Sequencer[None](chosen), Journal[None](), []

    def write(kind: Kind, payload: dict, event_us: int = 0, arrival_us: int = 0, final: bool = True) -> None:
        seq = len(events) + 1
        whole = {"call_id": call_id, **payload}
        events.append(Event("s", seq, 1, kind, whole, event_us, arrival_us, "x", None, final, 1.0, f"k{seq}"))

    for operation in operations:
        committed = sequencer.apply(operation)
        lines = [
            to_json(kept, lambda _p: None) for kept in journal.record(operation, yielded=bool(committed))
        ]
        if lines:
            first = settings and not events
            write(Kind.JOURNAL, {"operations": lines, **({"settings": chosen.model_dump()} if first else {})})
        for one in committed:
            received = {"order": one.seq, "statement": one.statement, "stream": one.stream}
            received |= {"identity": one.identity, "revision": one.revision, "late": one.late}
            write(Kind.ANNOTATION, received, one.event_us, one.arrival_us, one.final)
    return events


def test_a_stored_call_comes_out_in_the_same_order():
    [call] = recorded_calls(record("a", OPERATIONS))
    assert len(call.committed) == 4
    assert any(place[-1] for place in call.committed)
    assert replay(call).difference is None


def test_two_calls_of_a_session_are_kept_apart():
    events = [
        e for pair in zip(record("a", OPERATIONS), record("b", OPERATIONS[:6]), strict=False) for e in pair
    ]
    assert [call.call_id for call in recorded_calls(events)] == ["a", "b"]


def test_another_order_in_the_store_is_found():
    events = record("a", OPERATIONS)
    places = [number for number, event in enumerate(events) if event.kind is Kind.ANNOTATION]
    events[places[0]], events[places[1]] = events[places[1]], events[places[0]]
    [call] = recorded_calls(events)
    assert replay(call).difference.startswith("annotation 0: stored (1,")


def test_a_missing_annotation_is_found():
    events = record("a", OPERATIONS)
    last = max(number for number, event in enumerate(events) if event.kind is Kind.ANNOTATION)
    del events[last]
    [call] = recorded_calls(events)
    assert replay(call).difference == "3 annotations are stored, the replay gives 4"


def test_a_missing_operation_is_found():
    events = record("a", OPERATIONS)
    journal = next(event for event in events if "learn" in str(event.payload.get("operations")))
    journal.payload["operations"][:] = [line for line in journal.payload["operations"] if "learn" not in line]
    [call] = recorded_calls(events)
    assert replay(call).difference.startswith("annotation")


def test_a_journal_without_its_settings_is_said():
    [call] = recorded_calls(record("a", OPERATIONS, settings=False))
    assert replay(call).difference == "the journal does not begin with its settings"


def test_a_line_that_is_no_operation_is_an_error():
    events = record("a", OPERATIONS)
    events[0].payload["operations"][0] = "[]"
    with pytest.raises(StoreError, match="event 1: the journal cannot be read"):
        recorded_calls(events)


JOIN = '["join", "stt", 80000, 0, null]'
ODD = {
    "no operations": (Kind.JOURNAL, {}),
    "operations that are none": (Kind.JOURNAL, {"operations": [5]}),
    "operations that are no list": (Kind.JOURNAL, {"operations": 5}),
    "settings that are none": (Kind.JOURNAL, {"operations": [], "settings": {"deadline_us": "soon"}}),
    "a time that is none": (Kind.JOURNAL, {"operations": [JOIN, '["heartbeat", "stt", "now", null]']}),
    "a stream that never joined": (Kind.JOURNAL, {"operations": ['["learn", "stt", 5]']}),
    "an annotation without a place": (Kind.ANNOTATION, {"order": 0}),
}


@pytest.mark.parametrize("what", list(ODD))
def test_a_session_that_cannot_be_played_back_is_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kind, payload = ODD[what]
    payload = {"call_id": "a", "settings": SequencerSettings().model_dump(), **payload}
    event = Event("s", 1, 1, kind, payload, 0, 0, "x", None, True, 1.0, "k")
    session_id = asyncio.run(stored(tmp_path / "s.db", [event]))
    assert main([session_id, "--url", f"sqlite:///{tmp_path}/s.db"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("replay: ") and error.count("\n") == 1


@pytest.mark.parametrize("session", ["nonsense", "00000000-0000-4000-8000-000000000000"])
def test_an_unknown_session_is_one_line(session: str, tmp_path, capsys: pytest.CaptureFixture[str]):
    assert main([session, "--url", f"sqlite:///{tmp_path}/s.db"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("replay: ")
    assert error.count("\n") == 1


async def stored(path: Path, events: list[Event]) -> str:
    """Write a closed store with one session; return its id."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{path}"))
    writer = await store.claim((await store.create()).id)
    await writer.append(
        *[
            Draft(e.kind, e.payload, e.event_us, e.arrival_us, e.source, final=e.final, key=e.key)
            for e in events
        ]
    )
    await store.close()
    return writer.session_id


def looks(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
    }
    return {**found, ".": (0, folder.stat().st_mtime_ns, b"")}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a folder and a file that are read-only, with a call in it, and the id of its session."""
    folder = tmp_path / "kept"
    folder.mkdir()
    session = asyncio.run(stored(folder / "s.db", record("a", OPERATIONS)))
    (folder / "s.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder, session
    folder.chmod(0o755)


def test_a_store_that_may_only_be_read_is_replayed_and_left_as_it_is(
    kept: tuple[Path, str], capsys: pytest.CaptureFixture[str]
):
    folder, session = kept
    before = looks(folder)
    assert main([session, "--url", f"sqlite:///{folder}/s.db"]) == 0
    assert capsys.readouterr().out == "call a: 4 annotations, the same order\n"
    assert looks(folder) == before


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["x", "--url", f"sqlite:///{tmp_path}/inner/s.db"]) == 2
    assert "no session store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
