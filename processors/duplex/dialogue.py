"""Large tier of a call: a session, a model with tools and a voice, driven from the engine's thread.

Inputs: the decisions of the two-tier engine, in its thread (``TwoTierDialogue``). Outputs: the same
decisions, in order, as calls on the event loop (``DialogueActions``), where the pipeline is; and the contents
that the pipeline's voice makes (``processors.duplex.contents``), given to the current engine. Contents that
come while no engine is prepared wait for the next one, a few of them.

Nothing waits here. Each engine has its own end of the dialogue (``CallDialogue.end``): an engine that was
given up and comes back later requests nothing, and takes nothing from its successor.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import numpy as np

from parley.core.media import pcm16_to_float
from parley.models.omni import Preparation
from parley.models.omni.two_tier.content import Content
from parley.models.omni.two_tier.dialogue import Take, UserTurnReady

# A greeting, a prompt, an apology.
WAITING_CONTENTS = 8


class DialogueActions(Protocol):
    """Actions of the dialogue on the event loop; none of them blocks."""

    def on_foreseen(self, text: str | None) -> None:
        """Prepare the answer to these words, with which the turn may be over; None: the turn goes on."""

    def on_turn(self, *, is_open: bool) -> None:
        """Open the caller's turn, or close it without a word."""

    def on_asked(self, asked: UserTurnReady) -> None:
        """Answer the caller's turn, which is over."""

    def on_said(self, text: str) -> None:
        """Have a text said."""

    def on_dropped(self) -> None:
        """Drop everything that is being made."""

    def on_forgotten(self) -> None:
        """Discard the last recognised words, which were not meant."""


class CallDialogue:
    """Dialogue of one call. It is created on the event loop, and belongs to it.

    Args:
        steps: carries out the decisions.
        rate_hz: sample rate of the voice.
        kept: returns the cached 16-bit audio of a phrase at that rate, None when it is not cached; from any
            thread.
    """

    def __init__(self, steps: DialogueActions, *, rate_hz: int, kept: Callable[[str], bytes | None]) -> None:
        self.rate_hz = rate_hz
        self._steps = steps
        self._kept = kept
        self._loop = asyncio.get_running_loop()
        # Between the loop, where contents begin, and the engine's thread, which opens and closes.
        self._lock = threading.Lock()
        self._end: DialogueEnd | None = None
        self._waiting: deque[Content] = deque(maxlen=WAITING_CONTENTS)

    def end(self) -> "DialogueEnd":
        """Create an engine's end."""
        return DialogueEnd(self)

    @property
    def is_open(self) -> bool:
        """True when an engine takes contents."""
        return self._end is not None

    def arrived(self, content: Content) -> None:
        """Pass on a content that the voice begins to make."""
        with self._lock:
            take = self._end.take if self._end is not None else None
            if take is None:
                self._waiting.append(content)
            else:
                take(content)

    # For the ends, in the threads of their engines.

    def opened(self, end: "DialogueEnd", take: Take) -> None:
        """Make this end the current one; it takes the contents that have waited."""
        with self._lock:
            end.take, self._end = take, end
            while self._waiting:
                take(self._waiting.popleft())

    def closed(self, end: "DialogueEnd") -> None:
        """Close this end; if it was the current one, a turn that it had begun is over."""
        with self._lock:
            was_on, end.take = self._end is end, None
            if was_on:
                self._end = None
        if was_on:
            self._post(lambda: self._steps.on_turn(is_open=False))

    def post(self, end: "DialogueEnd", step: Callable[[DialogueActions], None]) -> None:
        """Run a step on the loop, if it comes from the current end."""
        if self._end is end:
            self._post(lambda: step(self._steps))

    def kept(self, text: str) -> bytes | None:
        """Return the cached audio of a phrase; see the class."""
        return self._kept(text)

    def _post(self, step: Callable[[], None]) -> None:
        # The process is ending when the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(step)


class DialogueEnd:
    """An engine's end; see ``TwoTierDialogue``. Used in the engine's thread.

    Attributes:
        take: takes contents; None while it is not the current one.
    """

    def __init__(self, call: CallDialogue) -> None:
        self.rate_hz = call.rate_hz
        self.take: Take | None = None
        self._call = call

    def open(self, preparation: Preparation, take: Take) -> None:
        """Begin to take contents; the prompt and the history are in the session."""
        self._call.opened(self, take)

    def foresee(self, text: str | None) -> None:
        """Pass a guess on; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_foreseen(text))

    def ask(self, asked: UserTurnReady) -> None:
        """Pass a turn on that is over; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_asked(asked))

    def say(self, text: str) -> None:
        """Have a text said; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_said(text))

    def hum(self, text: str) -> Content | None:
        """Return a backchannel from the cache; None when it is not cached."""
        pcm = self._call.kept(text)
        if pcm is None:
            return None
        content = Content(self.rate_hz, is_aside=True)
        content.add_audio(np.array(pcm16_to_float(pcm)))
        content.end()
        return content

    def drop(self) -> None:
        """Drop everything that is being made; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_dropped())

    def cut(self, text: str) -> None:
        """Do nothing; the playout clock has more accurate data."""

    def said(self, text: str) -> None:
        """Do nothing; the playout clock has more accurate data."""

    def turn(self, *, is_open: bool) -> None:
        """Pass on that the caller's turn opens or closes; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_turn(is_open=is_open))

    def forget(self) -> None:
        """Discard the last recognised words; see ``TwoTierDialogue``."""
        self._call.post(self, lambda steps: steps.on_forgotten())

    def close(self) -> None:
        """Close this end; see ``TwoTierDialogue``."""
        self._call.closed(self)
