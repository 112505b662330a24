"""The large tier of a call: a session, a model with tools and a voice, asked from the engine's thread.

In: what the two-tier engine decides, in its thread (``Dialogue``). Out: the same, in order, as calls on the
event loop (``Steps``), where the pipeline is; and the contents that the pipeline's voice makes
(``processors.duplex.contents``), handed to the engine that is on. Contents that come while no engine is
prepared wait for the next one, a few of them.

Nothing waits here. Each engine has its own end of the dialogue (``CallDialogue.end``): one that was given up
and comes back later asks for nothing, and takes nothing from the one that followed it.
"""

import asyncio
import threading
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

    def on_forgotten(self) -> None:
        """What was understood last was not meant."""


class CallDialogue:
    """Of one call. Made on the event loop, and belongs to it.

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
        # Between the loop, where contents begin, and the engine's thread, which opens and closes.
        self._lock = threading.Lock()
        self._end: DialogueEnd | None = None
        self._waiting: deque[Content] = deque(maxlen=WAITING_CONTENTS)

    def end(self) -> "DialogueEnd":
        """An engine's end: the one that is heard from here on."""
        return DialogueEnd(self)

    @property
    def is_open(self) -> bool:
        """Whether an engine takes what is made."""
        return self._end is not None

    def arrived(self, content: Content) -> None:
        """The voice begins to make something."""
        with self._lock:
            take = self._end.take if self._end is not None else None
            if take is None:
                self._waiting.append(content)
            else:
                take(content)

    # For the ends, in the threads of their engines.

    def opened(self, end: "DialogueEnd", take: Take) -> None:
        """This one is on: what has waited is its."""
        with self._lock:
            end.take, self._end = take, end
            while self._waiting:
                take(self._waiting.popleft())

    def closed(self, end: "DialogueEnd") -> None:
        """This one is not on any more, if it was; a turn that it had begun is over."""
        with self._lock:
            was_on, end.take = self._end is end, None
            if was_on:
                self._end = None
        if was_on:
            self._post(lambda: self._steps.on_turn(is_open=False))

    def post(self, end: "DialogueEnd", step: Callable[[Steps], None]) -> None:
        """Have this done on the loop, for the one that is on."""
        if self._end is end:
            self._post(lambda: step(self._steps))

    def kept(self, text: str) -> bytes | None:
        """See the class."""
        return self._kept(text)

    def _post(self, step: Callable[[], None]) -> None:
        # The process is ending when the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(step)


class DialogueEnd:
    """One engine's; see ``Dialogue``. Used in the engine's thread.

    Attributes:
        take: takes contents; None while it is not on.
    """

    def __init__(self, call: CallDialogue) -> None:
        self.rate_hz = call.rate_hz
        self.take: Take | None = None
        self._call = call

    def open(self, preparation: Preparation, take: Take) -> None:
        """See ``Dialogue``; who the bot is and what was said are in the session."""
        self._call.opened(self, take)

    def foresee(self, text: str | None) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_foreseen(text))

    def ask(self, asked: Asked) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_asked(asked))

    def say(self, text: str) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_said(text))

    def hum(self, text: str) -> Content | None:
        """See ``Dialogue``."""
        pcm = self._call.kept(text)
        if pcm is None:
            return None
        content = Content(self.rate_hz, is_aside=True)
        content.add_audio(np.array(pcm16_to_float(pcm)))
        content.end()
        return content

    def drop(self) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_dropped())

    def cut(self, text: str) -> None:
        """See ``Dialogue``; the playout clock knows it better."""

    def said(self, text: str) -> None:
        """See ``Dialogue``; the playout clock knows it better."""

    def turn(self, *, is_open: bool) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_turn(is_open=is_open))

    def forget(self) -> None:
        """See ``Dialogue``."""
        self._call.post(self, lambda steps: steps.on_forgotten())

    def close(self) -> None:
        """See ``Dialogue``."""
        self._call.closed(self)
