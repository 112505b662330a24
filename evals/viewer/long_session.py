"""Make a session of an hour from a real one of a minute.

A call is held and recorded. Its session and its recording are then repeated until they have the length:
events of the session with new keys and later times, events of the recording, sound and peaks. So what a page
has to read and draw is what a server writes, and as much of it as in a call of that length.
"""

import asyncio
import hashlib
import json
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile

from parley.evals.harness.questions import plan
from parley.evals.harness.speech import Speakers
from parley.evals.regression.recorded_calls import (
    FIRST_HEARD_MS,
    Manner,
    PlannedCall,
    PlannedTurn,
    record_calls,
    recording_deployment,
)
from parley.recording.folder import MERGED, PEAKS, TIMELINE, CallRecording, session_folders
from parley.recording.library import recordings_of
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

TURNS = 4
# In the folder of the server that shows the session: a server under test has its database next to its log.
SHOWN, DATABASE = "shown", "sessions.db"
# Identities in payloads, which are other ones in each repetition.
NAMES = ("call_id", "reply_id", "statement")
# What begins and ends the whole is not repeated.
BOUNDS = frozenset({"joined", "left", "recording"})


@dataclass(frozen=True, slots=True)
class LongSession:
    """Session for the viewer.

    Attributes:
        session_id: of the session.
        config: deployment whose server shows it.
        log: of that server, next to the database.
        duration_s: length of its call.
        events: number of events of the session.
        recorded_events: number of events of its recording.
    """

    session_id: str
    config: Path
    log: Path
    duration_s: int
    events: int
    recorded_events: int


async def make_long_session(folder: Path, duration_s: int, seed: int) -> LongSession:
    """Hold a call, and make it at least as long.

    Raises:
        PeerError: the server did not record the call.
        AgentError: there are no voices, or a file cannot be written.
    """
    config = recording_deployment(folder, None)
    call = await asyncio.to_thread(_planned, folder / "voices", seed)
    await record_calls([call], folder, config, at_once=1)
    [path] = session_folders(folder)
    [recording] = recordings_of(folder, path.name)
    length_ms = int(recording.timeline()["duration_ms"])
    times = -(-duration_s * 1_000 // length_ms)
    (folder / SHOWN).mkdir()
    recorded_events = await asyncio.to_thread(_repeat_recording, recording, times, length_ms)
    events = await _repeat_session(folder, path.name, times, length_ms * 1_000)
    return LongSession(
        path.name, config, folder / SHOWN / "server.log", times * length_ms // 1_000, events, recorded_events
    )


def _planned(voices: Path, seed: int) -> PlannedCall:
    """Plan a call of synthetic voices that interrupts every other answer."""
    speakers = Speakers(voices)
    said = [speakers.speak(each) for each in plan(TURNS, seed)]
    manners = [Manner.INTERRUPTS, Manner.LISTENS] * (TURNS // 2)
    turns = zip(said, manners, strict=True)
    return PlannedCall(tuple(PlannedTurn(spoken, manner, FIRST_HEARD_MS) for spoken, manner in turns))


def _repeat_recording(recording: CallRecording, times: int, length_ms: int) -> int:
    """Repeat sound, peaks and events of a recording; return the number of its events."""
    files, path = recording.files, recording.path
    with files.open(path / MERGED) as file:
        samples, rate_hz = soundfile.read(file, dtype="int16")
    once = samples[: length_ms * rate_hz // 1_000].astype("<i2").tobytes()
    with files.replacing(path / MERGED) as raw, wave.open(raw, "wb") as file:
        file.setparams((2, 2, rate_hz, 0, "NONE", ""))
        for _ in range(times):
            file.writeframes(once)
    peaks = files.json(path / PEAKS)
    steps = length_ms // int(peaks["interval_ms"])
    sides = {name: (peaks[name] + [0] * steps)[:steps] * times for name in ("caller", "bot")}
    files.write(path / PEAKS, json.dumps({**peaks, **sides}).encode())
    timeline = recording.timeline()
    events = [
        {**_renamed(event, number), "at_ms": event["at_ms"] + number * length_ms}
        for number in range(times)
        for event in timeline["events"]
    ]
    files.write(
        path / TIMELINE,
        json.dumps({**timeline, "duration_ms": times * length_ms, "events": events}).encode(),
    )
    return len(events)


async def _repeat_session(folder: Path, session_id: str, times: int, length_us: int) -> int:
    """Write a database with the repeated session; return the number of its events."""
    before = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/{DATABASE}"))
    try:
        header, *events, _ = [json.loads(line) async for line in before.export(session_id)]
    finally:
        await before.close()
    repeated = list(_repeated(events, times, length_us))
    whole = {**header, "count": len(repeated), "last_seq": len(repeated), "last_us": repeated[-1]["event_us"]}
    after = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/{SHOWN}/{DATABASE}"))
    try:
        await after.import_(_lines([whole, *repeated]))
    finally:
        await after.close()
    return len(repeated)


def _repeated(events: Sequence[Mapping[str, Any]], times: int, length_us: int) -> Iterator[dict[str, Any]]:
    """Yield the events once for each time; those that begin and end the call once."""
    first = next(place for place, event in enumerate(events) if event["kind"] not in BOUNDS)
    last = max(place for place, event in enumerate(events) if event["kind"] not in BOUNDS) + 1
    seq = 0
    for event in events[:first]:
        yield {**event, "seq": (seq := seq + 1)}
    for number in range(times):
        for event in events[first:last]:
            if event["kind"] in BOUNDS:
                continue
            moved = {name: event[name] + number * length_us for name in ("event_us", "arrival_us")}
            payload = _moved(_renamed(event["payload"], number), number * length_us)
            key = f"{event['key']}.{number}" if number else event["key"]
            yield {**event, **moved, "payload": payload, "key": key, "seq": (seq := seq + 1)}
    for event in events[last:]:
        moved = {name: event[name] + (times - 1) * length_us for name in ("event_us", "arrival_us")}
        yield {**event, **moved, "seq": (seq := seq + 1)}


def _renamed(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return fields with identities of their own."""
    given = {name: fields[name] for name in NAMES if number and isinstance(fields.get(name), str)}
    return {**fields, **{name: f"{value}.{number}" for name, value in given.items()}}


def _moved(value: Any, by_us: int) -> Any:
    """Return a payload whose times are later."""
    if isinstance(value, dict):
        return {
            name: each + by_us if name.endswith("_us") and isinstance(each, int) else _moved(each, by_us)
            for name, each in value.items()
        }
    return [_moved(each, by_us) for each in value] if isinstance(value, list) else value


def _lines(objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an export of a session, with its digest."""
    digest = hashlib.sha256()
    for each in objects:
        line = json.dumps(each, separators=(",", ":"), allow_nan=False)
        digest.update(f"{line}\n".encode())
        yield line
    yield json.dumps({"sha256": digest.hexdigest()})
