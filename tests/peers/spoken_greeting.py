"""A server whose voice is a service, and a caller who hears its greeting to the end."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from tests.peers.operations_gateway import BEARER
from tests.peers.server import running_server
from tests.peers.test_sessions import call, new_session, timeline, until_not_live

GREETING = (
    "Welcome to our small shop on the hill. We are open until nine, and you can ask me anything you like."
)


async def hear_greeting(
    tts: dict[str, Any],
    folder: Path,
    *,
    prepare: Callable[[httpx.AsyncClient], Awaitable[object]] | None = None,
    **settings: Any,
) -> tuple[bytes, list[dict[str, Any]]]:
    """Call a server whose greeting the embedded voice ends where the service fails.

    Args:
        tts: row of the service.
        folder: of the deployment and the log.
        prepare: is given a client of the server before the call.
        settings: of the deployment, in addition.

    Returns:
        What the caller heard, and the timeline of the session.
    """
    config = folder / "deployment.yaml"
    deployment = {
        "extends": "embedded",
        "bot": {"greeting": GREETING, "idle": None},
        "speaking": {"tts": tts, "fallback": [{"name": "flite"}]},
        **settings,
    }
    config.write_text(yaml.safe_dump(deployment))
    async with (
        running_server("--config", str(config), log=folder / "log") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client,
    ):
        if prepare is not None:
            await prepare(client)
        session = await new_session(client)
        async with call(client, session) as caller:
            heard = bytes(caller.heard)
        await until_not_live(client, session)
        return heard, await timeline(client, session)


def tone_s(pcm: bytes) -> float:
    """Return how long the service voice's tone of 880 Hz sounds."""
    audio = np.frombuffer(pcm, dtype="<i2").astype(float)
    pieces = audio[: len(audio) // 320 * 320].reshape(-1, 320) * np.hanning(320)
    spectra = np.abs(np.fft.rfft(pieces, axis=1)) ** 2
    share = spectra[:, 16:20].sum(axis=1) / np.maximum(spectra.sum(axis=1), 1e9)
    return float((share > 0.9).sum()) * 0.02
