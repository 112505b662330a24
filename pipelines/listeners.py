"""Receivers of the caller's audio, and of one piece by several of them."""

from collections.abc import Callable, Sequence

Listener = Callable[[bytes], None]


def fan_out(listeners: Sequence[Listener]) -> Listener:
    """Return a listener that passes each piece of audio to all of them."""

    def listen(pcm: bytes) -> None:
        for each in listeners:
            each(pcm)

    return listen
