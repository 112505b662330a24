"""The large tier of a call: a session, a model with tools and a voice, asked from the engine's thread.

In: what the two-tier engine decides, in its thread (``Dialogue``). Out: the same, in order, as calls on the
event loop (``Steps``), where the pipeline is; and the contents that the pipeline's voice makes
(``processors.duplex.contents``), handed to the engine that is on. Contents that come while no engine is
prepared wait for the next one, a few of them.

Nothing waits here. An engine that is gone asks for nothing any more, and its contents are kept for the one
that follows.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import numpy as np

from core.media import pcm16_to_float
from models.omni import Preparation
from models.omni.two_tier.content import Content
from models.omni.two_tier.dialogue import Asked, Take

# A greeting, a prompt, an apology.
WAITING_CONTENTS = 8


class Steps(Protocol):
    """What the dialogue has done on the event loop; none of it blocks."""

    def on_foreseen(self, text: str | None) -> None:
        """The turn may be over with these words; None: it goes on."""

    def on_turn(self, *, is_open: bool) -> None:
        """The caller takes the floor, or gives it back without a word."""

    def on_asked(self, asked: Asked) -> None:
        """The turn is over."""

    def on_said(self, text: str) -> None:
        """Have this said."""

    def on_dropped(self) -> None:
        """Nothing of what is being made is wanted."""


class CallDialogue:
    """See ``Dialogue``. Made on the event loop, and belongs to it.

    Args:
        steps: carries out what is asked for.
        rate_hz: of the voice.
        kept: 16-bit audio of a phrase at that rate, None when it is not kept; from any thread.
    """

    def __init__(self, steps: Steps, *, rate_hz: int, kept: Callable[[str], bytes | None]) -> None:
        self.rate_hz = rate_hz
        self._steps = steps
        self._kept = kept
        self._loop = asyncio.get_running_loop()
        self._take: Take | None = None
        self._waiting: deque[Content] = deque(maxlen=WAITING_CONTENTS)

    @property
    def is_open(self) -> bool:
        """Whether an engine takes what is made."""
        return self._take is not None

    def arrived(self, content: Content) -> None:
        """The voice begins to make something."""
        take = self._take
        if take is None:
            self._waiting.append(content)
        else:
            take(content)

    # In the engine's thread.

    def open(self, preparation: Preparation, take: Take) -> None:
        """See ``Dialogue``; who the bot is and what was said are in the session."""
        self._take = take
        while self._waiting:
            take(self._waiting.popleft())

    def foresee(self, text: str | None) -> None:
        """See ``Dialogue``."""
        self._post(lambda: self._steps.on_foreseen(text))

    def ask(self, asked: Asked) -> None:
        """See ``Dialogue``."""
        self._post(lambda: self._steps.on_asked(asked))

    def say(self, text: str) -> None:
        """See ``Dialogue``."""
        self._post(lambda: self._steps.on_said(text))

    def hum(self, text: str) -> Content | None:
        """See ``Dialogue``."""
        pcm = self._kept(text)
        if pcm is None:
            return None
        content = Content(self.rate_hz, is_aside=True)
        content.add_audio(np.array(pcm16_to_float(pcm)))
        content.end()
        return content

    def drop(self) -> None:
        """See ``Dialogue``."""
        self._post(self._steps.on_dropped)

    def cut(self, text: str) -> None:
        """See ``Dialogue``; the playout clock knows it better."""

    def said(self, text: str) -> None:
        """See ``Dialogue``; the playout clock knows it better."""

    def turn(self, *, is_open: bool) -> None:
        """See ``Dialogue``."""
        self._post(lambda: self._steps.on_turn(is_open=is_open))

    def close(self) -> None:
        """See ``Dialogue``."""
        self._take = None

    def _post(self, step: Callable[[], None]) -> None:
        # The process is ending when the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(step)
