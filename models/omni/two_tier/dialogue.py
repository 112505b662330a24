"""What the large tier is asked for, and what it gives: the seam between who decides and who finds words.

The engine's thread calls ``foresee``, ``ask``, ``say``, ``drop`` and ``hum``; each returns at once. What is
to be said comes back through ``take``, from any thread, as contents in the order in which they are to be
said: an answer, a phrase that covers a silence, an apology. A guess costs its making and comes back only when
it is asked with the same words.

``SpokenDialogue`` keeps the dialogue itself and makes contents with a model and a voice. A call of Parley has
another one, for which a whole pipeline of a session, a model with tools and a voice makes them
(``processors.duplex.dialogue``).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from models.llm import Message
from models.omni import Preparation
from models.omni.two_tier.content import Content, ContentMaker

Take = Callable[[Content], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn of the caller that is over.

    Attributes:
        text: what was understood of it.
        silence_ms: quiet that had passed by then.
        completeness: how complete it sounded; None when nobody said.
    """

    text: str
    silence_ms: int = 0
    completeness: float | None = None


class Dialogue(Protocol):
    """The large tier of one conversation.

    Attributes:
        rate_hz: of what is said.
    """

    rate_hz: int

    def open(self, preparation: Preparation, take: Take) -> None:
        """The conversation begins; contents go to ``take`` from here on."""
        ...

    def foresee(self, text: str | None) -> None:
        """The turn may be over with these words; None: it goes on."""
        ...

    def ask(self, asked: Asked) -> None:
        """The turn is over. What was being made for another is not wanted any more."""
        ...

    def say(self, text: str) -> None:
        """Have this said; it answers nothing."""
        ...

    def hum(self, text: str) -> Content | None:
        """A sound of who listens, at once; None where there is none."""
        ...

    def drop(self) -> None:
        """Nothing of what is being made is wanted any more."""
        ...

    def cut(self, text: str) -> None:
        """The caller cut in when so much had been said; empty: for nothing, it is said on."""
        ...

    def said(self, text: str) -> None:
        """So much of a content was said; it is over."""
        ...

    def turn(self, *, is_open: bool) -> None:
        """The caller takes the floor, or gives it back without a word."""
        ...

    def forget(self) -> None:
        """What was understood last was not meant."""
        ...

    def close(self) -> None:
        """The conversation is over."""
        ...


class SpokenDialogue:
    """A model, a voice and the dialogue as it was said; see ``Dialogue``.

    Args:
        maker: of contents.
        messages: of the dialogue that the model is given at most.
    """

    def __init__(self, maker: ContentMaker, *, messages: int = 40) -> None:
        self.rate_hz = maker.rate_hz
        self._maker = maker
        self._said: deque[Message] = deque(maxlen=messages)
        self._system = self._cut = ""
        self._take: Take | None = None
        self._guess: tuple[str, Content] | None = None
        self._wanted: list[Content] = []

    def open(self, preparation: Preparation, take: Take) -> None:
        """See ``Dialogue``."""
        self._system, self._take = preparation.system_prompt, take
        self._said.clear()
        for role, text in preparation.history:
            self._said.append(Message("assistant" if role == "assistant" else "user", text))

    def foresee(self, text: str | None) -> None:
        """See ``Dialogue``."""
        if self._guess is not None and self._guess[0] != text:
            self._guess[1].cancel()
            self._guess = None
        if text is not None and self._guess is None:
            self._guess = text, self._maker.answer(self._messages(text))

    def ask(self, asked: Asked) -> None:
        """See ``Dialogue``."""
        self.foresee(asked.text)
        guess, self._guess = self._guess, None
        self.drop()
        self._said.append(Message("user", asked.text))
        if guess is not None:
            self._give(guess[1])

    def say(self, text: str) -> None:
        """See ``Dialogue``."""
        self._give(self._maker.say(text))

    def hum(self, text: str) -> Content | None:
        """See ``Dialogue``."""
        return self._maker.say(text)

    def drop(self) -> None:
        """See ``Dialogue``."""
        wanted, self._wanted = self._wanted, []
        for content in wanted:
            content.cancel()

    def cut(self, text: str) -> None:
        """See ``Dialogue``."""
        self._cut = text.strip()

    def said(self, text: str) -> None:
        """See ``Dialogue``."""
        self._cut = ""
        if text.strip():
            self._said.append(Message("assistant", text.strip()))

    def turn(self, *, is_open: bool) -> None:
        """See ``Dialogue``."""

    def forget(self) -> None:
        """See ``Dialogue``."""

    def close(self) -> None:
        """See ``Dialogue``."""
        self.foresee(None)
        self.drop()
        self._take = None

    def _give(self, content: Content) -> None:
        self._wanted = [each for each in self._wanted if not each.is_over]
        self._wanted.append(content)
        if self._take is not None:
            self._take(content)

    def _messages(self, text: str) -> list[Message]:
        system = [Message("system", self._system)] if self._system else []
        cut = [Message("assistant", self._cut)] if self._cut else []
        return [*system, *self._said, *cut, Message("user", text)]
