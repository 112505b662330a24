"""Many telephone calls at a time: pacing of packets and cost of a call, next to stock Pipecat.

Every system plays the same words to the same silent callers (``crowd``, a process of its own), one after the
other in one run. ``parley`` is ``bot.py`` with signatures off. The words are its greeting, spoken by its
voice; its echo control and its voice detector run. The recogniser and the model are loaded and idle, because
the callers are silent, and the detector's network rests for the same reason. The target applies to this
system. ``parley_faked`` is the same without echo control and with fakes for detector and voice
(``product_server``): the cost of a call whose engines are in other processes or on other machines. The others
are ``players``: stock Pipecat's transport, the same with its detector, and this product's line alone; they
play the words from memory.

The processor's time is that of the server and its children while every caller receives speech. Compare
``stock`` with ``line``, and ``stock_vad`` with ``parley``, which does more. A system that cannot keep up has
``audio_percent`` below 100: its processor's time then covers fewer packets than the others'.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.harness.crowd import MARGIN_S, measured
from parley.evals.harness.launcher import PRODUCT, Server, launched
from parley.evals.harness.progress import say
from parley.evals.harness.questions import LONG_SPEECH
from parley.evals.harness.voices import synthesised
from parley.evals.phone.crowd import APART_S, SETTLE_S, SPEECH_S
from parley.models.tts import TTS
from parley.models.tts.flite import FliteSettings
from parley.protocols.twilio_media import RATE_HZ

TARGET = "pacing error p99 of at most 20 ms with 30 calls on 2 cores; processor time compared with stock's"
GOAL_MS = 20.0
FAKED = {
    "parley": "nothing; the callers say nothing, so recogniser and model are idle and the detector rests",
    "parley_faked": "voice activity (never hears anything), the voice (from memory); no echo control",
    "stock": "no recogniser, model, voice, detector; the words are played from memory",
    "stock_vad": "no recogniser, model, voice; the words are played from memory",
    "line": "no recogniser, model, voice, detector, echo control; the words are played from memory",
}
JUDGED = "parley"
FAKED_SERVER = ("-m", "parley.evals.harness.product_server", "--faked")
# The product's own process, or one with its gateway and pipeline: program, and YAML of the deployment.
SERVERS = {
    "parley": (PRODUCT, ""),
    "parley_faked": (FAKED_SERVER, 'hearing: {echo_mode: "off"}\n'),
}


async def measure(
    calls: int, seconds: int, folder: Path, systems: Sequence[str] = tuple(FAKED)
) -> dict[str, Any]:
    """Measure ``calls`` calls for ``seconds`` on each system.

    Raises:
        PeerError: a server does not start, or the callers end without a result.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    length_s = calls * APART_S + SETTLE_S + seconds + MARGIN_S
    words, pcm = await asyncio.to_thread(words_of, length_s)
    audio = folder / "words.pcm"
    await asyncio.to_thread(audio.write_bytes, pcm)
    found: dict[str, Any] = {}
    for system in systems:
        async with serving(system, calls, words, audio, folder) as server:
            found[system] = await measured(
                server,
                "parley.evals.phone.crowd",
                (server.url, str(calls), str(seconds)),
                calls=calls,
                seconds=seconds,
                start_s=calls * (APART_S + SPEECH_S) + SETTLE_S,
            )
        say(f"{system}: {json.dumps(found[system])}")
    judged = found.get(JUDGED, {})
    return {
        "target": TARGET,
        "reached": judged.get("held") == calls and judged["pacing_error_ms"]["p99"] <= GOAL_MS,
        "calls": calls,
        "seconds": seconds,
        "judged": JUDGED,
        "faked": {system: FAKED[system] for system in systems},
        "callers": "evals.phone.crowd, not streamdouble: thirty of those take a core",
        "systems": found,
    }


@asynccontextmanager
async def serving(system: str, calls: int, words: str, audio: Path, folder: Path) -> AsyncIterator[Server]:
    """Run a system for so many calls, whose greeting is ``words``; those of the players are in ``audio``."""
    if system in SERVERS:
        program, more = SERVERS[system]
        deployment = folder / f"{system}.yaml"
        store = f"sqlite:///{await asyncio.to_thread(folder.resolve)}/sessions-{time.time_ns()}.db"
        text = (
            f"bot: {{greeting: {json.dumps(words)}}}\nphone: {{signatures: false}}\n"
            f"server: {{admission: off, max_calls: {calls}, sessions_per_minute: 10000}}\n"
            f"remembering: {{store: {{url: {json.dumps(store)}}}}}\n{more}"
        )
        await asyncio.to_thread(deployment.write_text, text)
        arguments = ["--config", str(deployment)]
    else:
        program, arguments = ("-m", "parley.evals.phone.players"), [system, "--audio", str(audio)]
    async with launched(program, folder / f"{system}.log", *arguments) as server:
        yield server


def words_of(length_s: float) -> tuple[str, bytes]:
    """Return a text of at least this length, and its sound: 16-bit PCM at 8 kHz."""
    voice = TTS.create("flite", FliteSettings())
    sound = pcm16_to_float(synthesised(voice, LONG_SPEECH))
    once = np.asarray(soxr.resample(sound, voice.rate_hz, RATE_HZ), np.float32)
    times = 1 + int(length_s // (once.size / RATE_HZ))
    return LONG_SPEECH * times, float_to_pcm16(once) * times
