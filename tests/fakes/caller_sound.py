"""Sound of a caller for barge-in, of which a test gives the measurements that it needs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredSound:
    """Sound of a caller (``processors.turns.over_bot.voice.CallerSound``).

    Attributes:
        heard: returns how much of the audio voice activity has judged; None: it is never late.
        level: returns the level of the present voice; None: it is not measured.
        own: returns whether the last sound is the bot's own voice; None: nothing can tell.
        own_words: returns whether words are the bot's own; None: none are.
    """

    heard: Callable[[], int] | None = None
    level: Callable[[], float | None] | None = None
    own: Callable[[], bool | None] | None = None
    own_words: Callable[[str], bool] | None = None

    @property
    def finds_own(self) -> bool:
        return self.own is not None

    def heard_ms(self) -> int | None:
        return None if self.heard is None else self.heard()

    def level_db(self) -> float | None:
        return None if self.level is None else self.level()

    def is_own(self) -> bool | None:
        return None if self.own is None else self.own()

    def are_own(self, text: str) -> bool:
        return self.own_words is not None and self.own_words(text)
