"""``python -m evals.bench recorder``: processor time of recording, for each call.

Calls are recorded in real time, both sides in packets of 20 ms: the caller always, the bot every other two
seconds. They have one event loop, as on a server, and no pipeline: what is measured is the recorder with its
taps, the encoder and the disk. The same loop without recorders is subtracted. A packet is late because of
recording where the loop computes for longer than a packet to record those of all calls (``late_packets``);
``late_ms_p99`` is how late the loop was for any reason, without and with recorders. Packets that leave are
counted by ``evals.load --recorded``. Then the stereo file of one call is made. The signal is noise with the
envelope of speech. Output: one JSON line.
"""

import argparse
import asyncio
import base64
import json
import os
import tempfile
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from parley.evals.harness.command import exit_code, machine, positive, quiet_log
from parley.evals.harness.progress import Progress
from parley.recording.at_rest import KEYS_ENV
from parley.recording.disk import RecordingDisk
from parley.recording.folder import read_recording
from parley.recording.merge import merge_call
from parley.recording.recorder import CallRecorder, RecordingSource
from parley.recording.settings import RecordingSettings
from parley.runtime.encryption_keys import KEY_BYTES
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

CALLER_HZ, BOT_HZ = 16_000, 24_000
PACKET_S = 0.02
BOT_TURN_PACKETS = 100


def speechlike(seconds: float, rate_hz: int, seed: int) -> np.ndarray:
    """Return noise of 16 bits that falls with its frequency, in syllables of a quarter of a second."""
    chance = np.random.default_rng(seed)
    count = round(seconds * rate_hz)
    spectrum = np.fft.rfft(chance.standard_normal(count))
    hertz = np.fft.rfftfreq(count, 1 / rate_hz)
    noise = np.fft.irfft(spectrum / (1 + (hertz / 500) ** 2), count)
    syllables = np.repeat(chance.random(round(seconds * 4) + 1), rate_hz // 4)[:count]
    made: np.ndarray = (6_000 * noise * syllables / np.abs(noise).max()).astype("<i2")
    return made


async def record(
    folder: Path, *, calls: int, seconds: int, is_on: bool, encrypted: bool = False
) -> dict[str, float]:
    """Record calls in real time; return shares of a processor, and lateness, without the end of the calls."""
    disk, clock = RecordingDisk(), LoopClock()
    recorders = [
        CallRecorder(
            RecordingSettings(enabled=True, folder=folder, min_free_gb=0, encrypted=encrypted),
            RecordingSource(str(uuid.uuid4()), uuid.uuid4().hex, "webrtc", "bench", True, clock.now_us(), 0),
            CallEvents(),
            disk=disk,
            merging=None,
        )
        for _ in range(calls if is_on else 0)
    ]
    for each in recorders:
        each.start()
    caller, bot = speechlike(10, CALLER_HZ, 1), speechlike(10, BOT_HZ, 2)
    up, down = round(CALLER_HZ * PACKET_S), round(BOT_HZ * PACKET_S)
    loop, late_ms, took_s = asyncio.get_running_loop(), list[float](), list[float]()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in recorders]
        began_s, process_s, thread_s = loop.time(), time.process_time(), time.thread_time()
        for packet in range(round(seconds / PACKET_S)):
            due_s = began_s + packet * PACKET_S
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            late_ms.append((loop.time() - due_s) * 1_000)
            place, computed_s = packet % 400, time.thread_time()
            heard = caller[place * up : (place + 1) * up].tobytes()
            said = bot[place * down : (place + 1) * down].tobytes()
            for each in recorders:
                each.hear(heard, CALLER_HZ)
                if packet // BOT_TURN_PACKETS % 2:
                    each.play(said, BOT_HZ)
            took_s.append(time.thread_time() - computed_s)
        shares = {
            "cpu_percent": 100 * (time.process_time() - process_s) / seconds / calls,
            "loop_percent": 100 * (time.thread_time() - thread_s) / seconds / calls,
            "late_ms_p99": float(np.percentile(late_ms, 99)),
            "longest_ms": 1_000 * max(took_s),
            "late_packets": sum(each > PACKET_S for each in took_s),
        }
        for task in running:
            task.cancel()
    await asyncio.gather(*(each.close() for each in recorders))
    await asyncio.to_thread(disk.close, 30)
    return {**shares, "lost_ms": sum(each.lost_ms for each in recorders)}


def _merge_s(folder: Path) -> tuple[float, float]:
    """Return the seconds that the stereo file of one call takes, and its length in seconds."""
    recording = read_recording(next(folder.rglob("meta.json")).parent)
    began_s = time.process_time()
    merge_call(recording)
    return time.process_time() - began_s, recording.timeline()["duration_ms"] / 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=positive, default=20)
    parser.add_argument("--seconds", type=positive, default=30)
    parser.add_argument("--encrypted", action="store_true", help="encrypt the recordings")
    given = parser.parse_args(arguments)
    quiet_log()
    if given.encrypted:
        os.environ[KEYS_ENV] = base64.b64encode(os.urandom(KEY_BYTES)).decode()
    return exit_code(partial(_measure, given.calls, given.seconds, encrypted=given.encrypted))


def _measure(calls: int, seconds: int, *, encrypted: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder, progress = Path(name), Progress("steps", 3)
        idle = asyncio.run(record(folder, calls=calls, seconds=seconds, is_on=False))
        progress.step("calls without a recording")
        busy = asyncio.run(record(folder, calls=calls, seconds=seconds, is_on=True, encrypted=encrypted))
        progress.step("calls with a recording")
        merge_s, length_s = _merge_s(folder)
        progress.step("stereo file")
    found = {
        "encrypted": encrypted,
        "calls": calls,
        "seconds": seconds,
        "cpu_percent_per_call": round(busy["cpu_percent"] - idle["cpu_percent"], 3),
        "loop_percent_per_call": round(busy["loop_percent"] - idle["loop_percent"], 3),
        "late_ms_p99": [round(each["late_ms_p99"], 1) for each in (idle, busy)],
        "longest_ms": round(busy["longest_ms"], 2),
        "late_packets": busy["late_packets"],
        "lost_ms": busy["lost_ms"],
        "merge_ms_per_minute": round(60_000 * merge_s / length_s, 1),
        "machine": machine(),
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
