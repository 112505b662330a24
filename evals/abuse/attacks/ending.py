"""SIGTERM during calls: no caller is cut off in a word, and each receives the reason for the end."""

import asyncio
import os
import signal
from contextlib import suppress

import numpy as np

from parley.core.errors import AgentError
from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.likeness import RATE_HZ, SAID, at_8_khz, likeness, spoken
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.evals.abuse.settings import GOODBYE
from parley.evals.harness.phone_caller import Recording, Script, call
from parley.evals.harness.phone_network import front_of
from parley.evals.harness.phone_speech import samples_of
from parley.evals.harness.socket_caller import RATE_HZ as SOCKET_HZ
from parley.evals.harness.socket_caller import SocketCaller
from parley.evals.harness.speech import RATE_HZ as LINE_HZ
from parley.evals.harness.webrtc_caller import Line
from parley.protocols.client_protocol import STOPPING

SPEAKS_S, ENDS_S = 20.0, 60.0
LOOK_S = 0.05
# Time of the peers to close after the server has gone.
CLOSES_S = 5.0
UP_S = 4.0
SOCKET_QUESTIONS = 10


@attack(
    "sigterm",
    "calls are cut in mid-word after SIGTERM, with no goodbye",
    setting="ending",
    controls=False,
    ends_server=True,
    least_s=SPEAKS_S + ENDS_S,
)
async def sigterm(run: AttackRun) -> Outcome:
    """Stop the server while it speaks by WebRTC, by telephone and over a socket."""
    line = Line(run.target.url)
    socket = SocketCaller(f"{run.target.socket_url}/v1/realtime?model=parley-cascade", SOCKET_QUESTIONS)
    recordings: list[Recording] = []
    did: dict[str, object] = {}
    faults: list[str] = []

    def listen(recording: Recording) -> Script:
        recordings.append(recording)
        yield from recording.wait(SPEAKS_S + ENDS_S)

    async with front_of(run.target.url) as front:
        calling: list[asyncio.Task[object]] = [
            asyncio.create_task(call(front.url, listen), name="sigterm.phone"),
        ]
        try:
            # One after the other: a busy machine refuses calls that begin at once.
            if not await _speaks(recordings, calling[0]):
                return Outcome(0, faults=[f"no telephone call before the signal: {front.answers[-1:]}"])
            calling.append(asyncio.create_task(socket.call(), name="sigterm.socket"))
            await line.dial()
            if not await line.wait_bot_audible(line.connected_us, int(SPEAKS_S * 1000)):
                return Outcome(0, faults=["the bot does not speak before the signal"])
            # The socket gets its first answer meanwhile.
            await asyncio.sleep(UP_S)
            said_before = len(_said(line))
            os.kill(run.target.pid, signal.SIGTERM)
            did["lasted_s"] = await _ended(run.target.pid)
            did["transcript"] = " ".join(_said(line)[said_before:])[-len(GOODBYE) - 20 :]
            if is_running(run.target.pid):
                faults.append(f"the server still runs {ENDS_S:.0f} s after the signal")
            await asyncio.wait(calling, timeout=CLOSES_S)
        except (AgentError, *GONE) as error:
            faults.append(f"the call breaks: {error}")
        finally:
            for task in calling:
                task.cancel()
            ends = await asyncio.gather(*calling, return_exceptions=True)
            did["ends"] = [type(end).__name__ for end in ends]
            with suppress(TimeoutError):
                await line.hang_up()
    frames = [frame.pcm for frame in line.ears.frames]
    phone = b"".join(piece.mu_law for recording in recordings for piece in recording.heard)
    wanted = spoken(GOODBYE)
    audio = {
        "webrtc": at_8_khz(np.concatenate(frames), LINE_HZ) if frames else np.zeros(0),
        "socket": at_8_khz(np.frombuffer(bytes(socket.audio), "<i2"), SOCKET_HZ),
        "phone": samples_of(phone).astype(np.float64),
    }
    for transport, heard in audio.items():
        likely = did[transport] = round(likeness(heard, wanted), 2)
        did[f"{transport} heard_s"] = round(len(heard) / RATE_HZ, 1)
        if likely < SAID:
            faults.append(f"{transport}: no goodbye is heard ({likely} like it)")
    if GOODBYE.split()[1] not in str(did.get("transcript")):
        faults.append(f"webrtc: no goodbye in the transcript: {did.get('transcript')!r} is the end of it")
    did["socket closed"] = socket.closed
    if socket.closed != STOPPING:
        faults.append(f"socket: closed with {socket.closed}")
    return Outcome(1, did, faults)


async def _speaks(recordings: list[Recording], calling: asyncio.Task[object]) -> bool:
    """Wait until the bot is audible on the telephone; return whether it is in time."""
    for _ in range(round(SPEAKS_S / LOOK_S)):
        if calling.done() or any(recording.loud_s is not None for recording in recordings):
            break
        await asyncio.sleep(LOOK_S)
    return any(recording.loud_s is not None for recording in recordings)


async def _ended(pid: int) -> float:
    """Return the seconds until the server was gone, at most ``ENDS_S``."""
    loop = asyncio.get_running_loop()
    stopped_s = loop.time()
    for _ in range(round(ENDS_S / LOOK_S)):
        if not is_running(pid):
            break
        await asyncio.sleep(LOOK_S)
    return round(loop.time() - stopped_s, 1)


def _said(line: Line) -> list[str]:
    """Return the bot's reported text, in order."""
    return [
        str((message.body.get("data") or {}).get("text", ""))
        for message in line.messages
        if message.body.get("type") in ("bot-tts-text", "bot-output", "bot-transcription")
    ]


def is_running(pid: int) -> bool:
    """Return whether a process has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
