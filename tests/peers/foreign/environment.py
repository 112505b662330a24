"""Environments of Python for other projects' clients, whose packages do not fit those of Parley."""

import asyncio
import os
import sys
import wave
from pathlib import Path

import pytest

from tests.peers.realtime_caller import PCM_HZ, at_rate
from tests.voices import say


async def python_with(*packages: str, folder: Path, variable: str) -> str:
    """Return an interpreter that has the packages; skip the test where they cannot be installed.

    Args:
        packages: with their versions.
        folder: for a new environment.
        variable: of the environment, which may name an interpreter that has them.
    """
    given = os.environ.get(variable)
    if given:
        return given
    python = str(folder / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "-q", *packages],
    ):
        made = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        if await made.wait():
            # A registry without them is no fault of this product.
            pytest.skip(f"cannot be installed here: {', '.join(packages)}")
    return python


def wav(path: Path, text: str) -> str:
    """Write speech as a WAV of the rate that OpenAI's clients use; return its path."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(PCM_HZ)
        file.writeframes(at_rate(say(text), PCM_HZ))
    return str(path)
