"""Recorded call, or a session without one, as the MiniCPM-o server's ``meta.json`` and ``recording.json``.

Input: a recording, or the turns of a session. Output: the objects that the viewer of that server reads. Only
what is known is there: a field that viewer can do without is left out where there is no such fact, such as
the times of its stages. A chunk of its timeline is a segment of the recording, which is longer than its
second. Blocks where it reads files.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from parley.recording.folder import (
    BOT_AUDIO,
    CALLER_AUDIO,
    FRAMES,
    IMAGES,
    MERGED,
    VIDEO,
    CallRecording,
    image_facts,
)
from parley.recording.timeline import MOST_MS, SERVED_BYTES, timeline_of

# Name of the duplex protocol of that server in recordings, and that server's names of apps.
DUPLEX = "duplex_ws"
APP_TYPES = {"half_duplex": "half_duplex_audio", "chat": "chat"}
TYPED = "chat"
_US_PER_S, _MS_PER_S = 1_000_000, 1_000


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """Turn of a session and its answer.

    Attributes:
        at_ms: when it ended, from the beginning of the session.
        text: words of the caller.
        answer: words of the bot; empty for none.
    """

    at_ms: int
    text: str
    answer: str


def call_meta(recording: CallRecording) -> dict[str, Any]:
    """Return the facts of a recorded call."""
    timeline = timeline_of(recording, most_bytes=SERVED_BYTES)
    began = _began(recording)
    ended = began + timedelta(milliseconds=timeline.duration_ms)
    return {
        "session_id": recording.session_id,
        "app_type": _app_type(recording),
        "created_at": began.isoformat(),
        "ended_at": ended.isoformat() if timeline.is_over else None,
        "duration_s": round(timeline.duration_ms / _MS_PER_S, 1) if timeline.is_over else None,
        "worker_id": None,
        "title": f"{recording.meta.get('deployment', '')} {began:%Y-%m-%d %H:%M}".strip(),
        "config": {},
    }


def session_meta(session_id: str, created_us: int) -> dict[str, Any]:
    """Return the facts of a session without a recorded call."""
    began = datetime.fromtimestamp(created_us / _US_PER_S, UTC)
    return {
        "session_id": session_id,
        "app_type": TYPED,
        "created_at": began.isoformat(),
        "ended_at": None,
        "duration_s": None,
        "worker_id": None,
        "title": f"{began:%Y-%m-%d %H:%M}",
        "config": {},
    }


def call_recording(recording: CallRecording) -> dict[str, Any]:
    """Return the timeline of a recorded call: chunks of a full-duplex one, turns of any other."""
    timeline = timeline_of(recording, most_bytes=SERVED_BYTES)
    is_duplex = recording.meta.get("transport") == DUPLEX
    found: dict[str, Any] = {
        "session_id": recording.session_id,
        "mode": "duplex" if is_duplex else _app_type(recording),
        "worker_id": None,
        "start_ts": _began(recording).isoformat(),
        "config": {},
    }
    if is_duplex:
        found["chunks"] = _chunks(recording, timeline.events, timeline.duration_ms)
    else:
        found["turns"] = _turns(recording, timeline.events)
    if recording.files.has(recording.path / MERGED):
        found["merged_replay"] = MERGED
    if recording.files.has(recording.path / VIDEO):
        found["merged_replay_video"] = VIDEO
    return found


def session_recording(session_id: str, created_us: int, turns: Sequence[ShownTurn]) -> dict[str, Any]:
    """Return the timeline of a session without a recorded call: its turns in words."""
    return {
        "session_id": session_id,
        "mode": TYPED,
        "worker_id": None,
        "start_ts": datetime.fromtimestamp(created_us / _US_PER_S, UTC).isoformat(),
        "config": {},
        "turns": [
            {
                "turn_index": index,
                "request_ts_ms": turn.at_ms,
                "input": {"text": turn.text},
                "output": {"text": turn.answer},
                "timing": {},
            }
            for index, turn in enumerate(turns)
        ],
    }


def _began(recording: CallRecording) -> datetime:
    try:
        return datetime.fromisoformat(str(recording.meta.get("began_at")))
    except ValueError:
        # Another writer, or another version: the clock of the session has it too.
        began_us = recording.meta.get("began_us")
        return datetime.fromtimestamp((began_us if isinstance(began_us, int) else 0) / _US_PER_S, UTC)


def _app_type(recording: CallRecording) -> str:
    transport = str(recording.meta.get("transport", ""))
    if transport == DUPLEX:
        return "omni_duplex" if recording.pictures() else "audio_duplex"
    return APP_TYPES.get(transport, transport)


def _chunks(
    recording: CallRecording, events: Sequence[dict[str, Any]], duration_ms: int
) -> list[dict[str, Any]]:
    heard, said = recording.segments(CALLER_AUDIO), recording.segments(BOT_AUDIO)
    long_ms = recording.segment_ms
    frames = {at_ms // long_ms: path.name for at_ms, path in reversed(recording.pictures())}
    texts, ends = _replies(events, long_ms)
    count = max(-(-duration_ms // long_ms), *(number + 1 for number in (*heard, *said, -1)))
    # A file may have any number.
    count = min(count, MOST_MS // long_ms + 1)
    chunks = []
    for index in range(count):
        result: dict[str, Any] = {"mode": "SPEAK" if index in said else "LISTEN", "timing": {}}
        if index in texts:
            result["text"] = " ".join(texts[index])
        if index in said:
            result["ai_audio"] = f"{BOT_AUDIO}/{said[index].name}"
        if index in ends:
            result["end_of_turn"] = True
        chunk: dict[str, Any] = {"index": index, "receive_ts_ms": index * long_ms}
        if index in heard:
            chunk["user_audio"] = f"{CALLER_AUDIO}/{heard[index].name}"
        if index in frames:
            chunk["user_frame"] = f"{FRAMES}/{frames[index]}"
        chunks.append({**chunk, "result": result})
    return chunks


def _replies(events: Sequence[dict[str, Any]], long_ms: int) -> tuple[dict[int, list[str]], frozenset[int]]:
    """Return the words of replies by the chunk of their first sound, and the chunks in which replies end."""
    began: dict[str, int] = {}
    texts: defaultdict[int, list[str]] = defaultdict(list)
    ends = set[int]()
    for event in events:
        at_ms, reply_id = event["at_ms"], event.get("reply_id")
        if event["event"] == "ReplyStarted" and isinstance(reply_id, str):
            began[reply_id] = at_ms
        elif event["event"] == "ReplyFinished":
            ends.add(at_ms // long_ms)
            if text := _text(event):
                first_ms = began.get(reply_id, at_ms) if isinstance(reply_id, str) else at_ms
                texts[first_ms // long_ms].append(text)
    return dict(texts), frozenset(ends)


def _turns(recording: CallRecording, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns of a caller, each with the words that the bot said until the next one."""
    turns: list[dict[str, Any]] = []
    for event in events:
        name, at_ms = event["event"], event["at_ms"]
        if name in ("TurnEnded", "TextTyped") and _text(event):
            turns.append(_turn(len(turns), at_ms, _text(event)))
        elif name == "ReplyFinished" and _text(event):
            if not turns:
                # The bot speaks first.
                turns.append(_turn(0, at_ms, ""))
            output = turns[-1]["output"]
            output["text"] = f"{output['text']} {_text(event)}".strip()
        elif name == "AnswerHeard" and turns and isinstance(event.get("latency_ms"), int):
            turns[-1]["timing"].setdefault("elapsed_ms", event["latency_ms"])
    for path in recording.images() if turns else ():
        # Their time is that of the commit of their turn, which is not exactly the end of it.
        time_ms = image_facts(path.name)[0]
        nearest = min(turns, key=lambda turn: abs(turn["request_ts_ms"] - time_ms))
        nearest["input"].setdefault("images", []).append(f"{IMAGES}/{path.name}")
    return turns


def _turn(index: int, at_ms: int, text: str) -> dict[str, Any]:
    return {
        "turn_index": index,
        "request_ts_ms": at_ms,
        "input": {"text": text},
        "output": {"text": ""},
        "timing": {},
    }


def _text(event: dict[str, Any]) -> str:
    text = event.get("text")
    return text.strip() if isinstance(text, str) else ""
