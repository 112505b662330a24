"""Player of the MiniCPM-o server's pages: when a client that plays results as they come falls silent."""

import base64
from collections.abc import Sequence
from typing import Any

# Float32 at 24 kHz.
BYTES_PER_MS = 96


def silences_ms(results: Sequence[tuple[float, dict[str, Any]]], *, delay_ms: float = 0.0) -> list[float]:
    """Return the silences within replies, as the player's own clock measures them.

    Args:
        results: arrival in milliseconds, and the result.
        delay_ms: wait of the player before the first sound of a reply.
    """
    silences: list[float] = []
    until_ms, is_within = 0.0, False
    for at_ms, result in results:
        audio_ms = len(base64.b64decode(result["audio_data"])) / BYTES_PER_MS
        if result["interrupted"]:
            until_ms, is_within = 0.0, False
        if audio_ms:
            if is_within and at_ms > until_ms:
                silences.append(at_ms - until_ms)
            until_ms = max(until_ms, at_ms if is_within else at_ms + delay_ms) + audio_ms
            is_within = True
        is_within = is_within and not result["end_of_turn"]
    return silences
