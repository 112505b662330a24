"""Phone call without a phone: a server on this machine, and a simulated caller over its real socket.

Input: the caller's speech; without any, the caller asks ``QUESTION`` aloud. Output: the call in stereo
(caller left, bot right, 8 kHz) and its record. Needs no credentials: requests are not signed, and the server
is reached from this machine alone. Numbers are not remembered: the caller is anonymous.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from parley.audio import g711
from parley.audio.resample import Resampler
from parley.configs.deployment import Deployment, Phone
from parley.core.errors import ConfigError, PeerError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.pipelines.call import Call
from parley.protocols.twilio_media import RATE_HZ
from parley.recording.stereo import StereoRecording
from parley.transports.twilio.simulated_caller import SimulatedCall, SimulatedCallResult

QUESTION = "What are your opening hours on Saturday?"
LOOPBACK = "127.0.0.1"
READY_S = 0.02


def simulated(deployment: Deployment) -> Deployment:
    """Return the deployment with a phone line that only a simulated caller on this machine reaches."""
    phone = (deployment.phone or Phone()).model_copy(
        update={"signatures": False, "public_url": None, "remember_callers": None}
    )
    server = deployment.server.model_copy(update={"host": LOOPBACK})
    return deployment.model_copy(update={"phone": phone, "server": server})


def on_the_line(pcm: bytes, rate_hz: int) -> bytes:
    """Convert PCM to the form of a phone line: mu-law at 8 kHz."""
    samples = pcm16_to_float(pcm)
    if rate_hz != RATE_HZ:
        resampler = Resampler(rate_hz, RATE_HZ)
        samples = resampler.feed(np.concatenate((samples, np.zeros(resampler.delay_samples, np.float32))))
    low = np.frombuffer(float_to_pcm16(samples), "<i2").astype(np.int16)
    return g711.encode(low, g711.Law.MU)


async def asked_aloud(deployments: TextToSpeech | None, text: str = QUESTION) -> bytes:
    """Return a spoken question in the line's format, in another voice than the bot's if flite is there.

    Without flite it is the deployment's own voice.

    Raises:
        ConfigError: flite is missing, and the deployment's voice is a cloud service.
    """
    voice = _other_voice() or deployments
    if voice is None:
        raise ConfigError(
            "the voice of this deployment is a service: give the caller's speech with --input WAV"
        )
    pieces: list[bytes] = []

    def take(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    await asyncio.to_thread(voice.synthesize, text, take)
    return await asyncio.to_thread(on_the_line, b"".join(pieces), voice.rate_hz)


def _other_voice() -> TextToSpeech | None:
    from parley.models.tts.flite import FliteSettings, FliteTts

    try:
        return FliteTts(FliteSettings(voice="rms"))
    except ConfigError:
        return None


async def call_here(
    server: uvicorn.Server, listener: socket.socket, speech: bytes, recording: StereoRecording | None
) -> SimulatedCallResult:
    """Serve for the length of one call; return the caller's result.

    Raises:
        PeerError: the call is refused, or the server does not start.
    """
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="server")
    try:
        while not server.started:
            if serving.done():
                serving.result()
                raise PeerError("the server did not start")
            await asyncio.sleep(READY_S)
        port = listener.getsockname()[1]
        return await SimulatedCall(f"http://{LOOPBACK}:{port}", speech, recording=recording).hold()
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


def record_of(call: Call | None, heard: SimulatedCallResult, **facts: Any) -> dict[str, Any]:
    """Return the call as JSON, in the format of ``--transport file``.

    Args:
        call: the server's side of the call; None when none began.
        heard: the caller's side of the call.
        facts: facts of the run.
    """
    return {
        **facts,
        "session": None if call is None else call.conversation.session_id,
        "duration_ms": heard.duration_ms,
        "ended": heard.ended,
        "marks": heard.marks,
        "clears": heard.clears,
        "violations": heard.violations,
        "turns": [] if call is None else [record.as_message() for record in call.live.turns.finished],
    }


def open_recording(output: Path | None) -> StereoRecording | None:
    """Open the recording of a call; None without a path.

    Raises:
        ConfigError: it cannot be written.
    """
    if output is None:
        return None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        return StereoRecording(output, rate_hz=RATE_HZ)
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from error
