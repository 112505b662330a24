"""A recorded call on the disk, made by the recorder itself from two tones."""

import asyncio
import uuid
from pathlib import Path

import numpy as np

from parley.core.call_events import TurnEnded
from parley.recording.disk import RecordingDisk
from parley.recording.recorder import CallRecorder, RecordingSource
from parley.recording.settings import RecordingSettings
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

RATE_HZ = 16_000
CALLER_LEVEL, BOT_LEVEL = 500, 8_000


async def record_call(
    folder: Path,
    session_id: str,
    *,
    seconds: float = 1.0,
    merged: bool = True,
    encrypted: bool = False,
    call_id: str | None = None,
    transport: str = "webrtc",
) -> Path:
    """Record a call in which both sides sound from its beginning; return its folder."""
    events, disk, merging = CallEvents(), RecordingDisk(), RecordingDisk("merging")
    began_us = LoopClock().now_us()
    recorder = CallRecorder(
        RecordingSettings(folder=folder, min_free_gb=0, encrypted=encrypted),
        RecordingSource(
            session_id, call_id or uuid.uuid4().hex, transport, "embedded", False, began_us, 5_000_000
        ),
        events,
        disk=disk,
        merging=merging if merged else None,
    )
    recorder.start()
    tone = np.sin(np.arange(round(seconds * RATE_HZ)) / 5)
    recorder.play((BOT_LEVEL * tone).astype("<i2").tobytes(), RATE_HZ, began_us)
    recorder.hear((CALLER_LEVEL * tone).astype("<i2").tobytes(), RATE_HZ)
    events.publish(TurnEnded(events.now_ms(), "hello"))
    await recorder.close()
    await asyncio.to_thread(disk.close, 5)
    await asyncio.to_thread(merging.close, 5)
    return recorder.path
