"""Phases of a conversation in which its server is killed.

``Progress`` follows the typed turns of the running conversation: the client, the model and the endpoints of
the tools report the beginning of each phase. A kill is drawn in a phase and comes at a uniformly random
moment of it, by the length of the phase in earlier turns. It may come a little late, so the phase in which it
came is the one that counts. Needs a running event loop.
"""

import asyncio
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import StrEnum

from parley.core.errors import PeerError

REACH_S = 20.0
# Number of the newest stretches of a phase that count: older ones reflect another load of the machine.
KEPT = 9


class Phase(StrEnum):
    """Phases of a conversation."""

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
    """Yield a phase for each kill: each of them once, in random order, before any is repeated."""
    phases = [*TYPED, *OF_A_CALL] if voice else list(TYPED)
    while True:
        yield from chance.sample(phases, k=len(phases))


class Progress:
    """Phase of the typed turns of a conversation.

    Attributes:
        phase: the present one.
    """

    def __init__(self) -> None:
        self.phase = Phase.BETWEEN
        self._since_s = 0.0
        self._runs = False
        self._lasted_s: dict[Phase, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._reached = asyncio.Event()
        self._awaited: Phase | None = None

    def begin(self) -> None:
        """Begin a conversation, between its turns."""
        self.phase, self._runs = Phase.BETWEEN, True

    def expect(self, phase: Phase) -> None:
        """Select the next stretch of this phase for ``moment``."""
        self._awaited = phase
        self._reached.clear()

    def end(self) -> None:
        """End the conversation, because its server is dead; later reports are ignored."""
        self._runs, self._awaited = False, None

    def enter(self, phase: Phase) -> None:
        """Begin a phase, and end the one before it."""
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
            PeerError: the conversation does not reach it.
        """
        phase = self._awaited
        assert phase is not None
        try:
            async with asyncio.timeout(REACH_S):
                await self._reached.wait()
        except TimeoutError:
            raise PeerError(f"the conversation never reaches the phase {phase}") from None
        lasted_s = self._lasted_s[phase]
        await asyncio.sleep(chance.uniform(0, statistics.median(lasted_s)) if lasted_s else 0)
