"""Environments for other projects' clients, whose packages do not fit those of Parley."""

import wave
from pathlib import Path

import pytest

from parley.core.errors import PeerError
from parley.evals.foreign.programs import Program, environment
from tests.peers.realtime_caller import PCM_HZ, at_rate
from tests.voices import say


async def installed(program: Program, folder: Path) -> str:
    """Return the ``environment`` of a program; skip the test where its packages cannot be installed."""
    try:
        return await environment(program, folder)
    except PeerError as error:
        # A registry without them is no fault of this product.
        pytest.skip(str(error))


def wav(path: Path, text: str) -> str:
    """Write speech as a WAV of the rate that OpenAI's clients use; return its path."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(PCM_HZ)
        file.writeframes(at_rate(say(text), PCM_HZ))
    return str(path)
