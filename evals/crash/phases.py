"""The moments of a conversation in which its server is killed.

``Progress`` follows the typed turns of the running conversation: the client, the model and the endpoints of
the tools say which phase has begun. A kill is drawn in a phase and comes at a uniformly random moment of it,
by how long the phase took before; it may come a little late, so the phase in which it did come is what is
counted. Needs a running event loop.
"""

import asyncio
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import StrEnum

from core.errors import PeerError

REACH_S = 20.0
# Of the newest stretches of a phase: what a busy machine did a minute ago says little about now.
KEPT = 9


class Phase(StrEnum):
    """What goes on in a conversation."""

    SENDING = "while a turn is being sent"
    COMMITTED = "between commit and answer"
    ANSWERING = "during the answer"
    TOOL = "while a tool runs"
    RESULT = "between tool result and answer"
    AUDIO = "while audio plays"
    BETWEEN = "between turns"


TYPED = (Phase.SENDING, Phase.COMMITTED, Phase.ANSWERING, Phase.TOOL, Phase.RESULT)
OF_A_CALL = (Phase.AUDIO,)


def draw(chance: random.Random, *, voice: bool) -> Iterator[Phase]:
    """Phases for kill after kill: each of them once, in random order, before one comes again."""
    phases = [*TYPED, *OF_A_CALL] if voice else list(TYPED)
    while True:
        yield from chance.sample(phases, k=len(phases))


class Progress:
    """Which phase the typed turns of a conversation are in.

    Attributes:
        phase: now.
    """

    def __init__(self) -> None:
        self.phase = Phase.BETWEEN
        self._since_s = 0.0
        self._runs = False
        self._lasted_s: dict[Phase, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._reached = asyncio.Event()
        self._awaited: Phase | None = None

    def begin(self) -> None:
        """A conversation begins, between its turns."""
        self.phase, self._runs = Phase.BETWEEN, True

    def expect(self, phase: Phase) -> None:
        """The next stretch of this phase is the one for ``moment``."""
        self._awaited = phase
        self._reached.clear()

    def end(self) -> None:
        """Its server is dead: what is still said of it says nothing."""
        self._runs, self._awaited = False, None

    def enter(self, phase: Phase) -> None:
        """A phase begins, and the one before it is over."""
        if not self._runs:
            return
        now_s = asyncio.get_running_loop().time()
        if self.phase is not Phase.BETWEEN:
            self._lasted_s[self.phase].append(now_s - self._since_s)
        self.phase, self._since_s = phase, now_s
        if phase is self._awaited:
            self._reached.set()

    async def moment(self, chance: random.Random) -> None:
        """Return at a random moment of the expected phase.

        Raises:
            PeerError: the conversation does not come to it.
        """
        phase = self._awaited
        assert phase is not None
        try:
            async with asyncio.timeout(REACH_S):
                await self._reached.wait()
        except TimeoutError:
            raise PeerError(f"the conversation does not come to a moment {phase}") from None
        lasted_s = self._lasted_s[phase]
        await asyncio.sleep(chance.uniform(0, statistics.median(lasted_s)) if lasted_s else 0)
