"""Interface between the small tier, which decides, and the large tier, which makes the content.

The engine's thread calls ``foresee``, ``ask``, ``say``, ``drop`` and ``hum``; each returns at once. Content
comes back through ``take``, from any thread, in the order in which it is to be spoken: an answer, a phrase
that covers a silence, an apology. A guess is made in advance and comes back only when it is asked with the
same words.

``SpokenDialogue`` keeps the dialogue itself and makes contents with a model and a voice. A call of Parley has
another implementation (``processors.duplex.dialogue``): a pipeline of a session, a model with tools and a
voice.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parley.models.llm import Message
from parley.models.omni import Preparation
from parley.models.omni.two_tier.content import Content, ContentMaker

Take = Callable[[Content], None]


@dataclass(frozen=True, slots=True)
class UserTurnReady:
    """Completed turn of the caller.

    Attributes:
        text: transcript of the turn.
        silence_ms: silence that had passed by then.
        completeness: probability that the turn is complete; None when unknown.
    """

    text: str
    silence_ms: int = 0
    completeness: float | None = None


class TwoTierDialogue(Protocol):
    """Large tier of one conversation.

    Attributes:
        rate_hz: rate of its speech.
    """

    rate_hz: int

    def open(self, preparation: Preparation, take: Take) -> None:
        """Begin the conversation; contents go to ``take`` from here on."""
        ...

    def foresee(self, text: str | None) -> None:
        """Prepare for a turn that may end with these words; None when it continues."""
        ...

    def ask(self, asked: UserTurnReady) -> None:
        """Answer a completed turn. Content that is being made for another turn is dropped."""
        ...

    def say(self, text: str) -> None:
        """Speak a text that answers no turn."""
        ...

    def hum(self, text: str) -> Content | None:
        """Return a backchannel, at once; None where there is none."""
        ...

    def drop(self) -> None:
        """Cancel all content that is being made."""
        ...

    def cut(self, text: str) -> None:
        """Record an interruption after ``text`` had been spoken; empty when unintended: the reply
        continues.
        """
        ...

    def said(self, text: str) -> None:
        """Record the spoken text of a content that is over."""
        ...

    def turn(self, *, is_open: bool) -> None:
        """Record that the caller takes the floor, or gives it back without a word."""
        ...

    def forget(self) -> None:
        """Discard the last transcript, which was not meant for the bot."""
        ...

    def close(self) -> None:
        """End the conversation."""
        ...


class SpokenDialogue:
    """Dialogue with a model and a voice, which keeps the spoken history; implements ``TwoTierDialogue``.

    Args:
        maker: maker of contents.
        messages: greatest number of messages that the model gets.
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
        """Begin the conversation with the prompt and history of ``preparation``."""
        self._system, self._take = preparation.system_prompt, take
        self._said.clear()
        for role, text in preparation.history:
            self._said.append(Message("assistant" if role == "assistant" else "user", text))

    def foresee(self, text: str | None) -> None:
        """Make the answer to a possible turn; cancel the guess for other words."""
        if self._guess is not None and self._guess[0] != text:
            self._guess[1].cancel()
            self._guess = None
        if text is not None and self._guess is None:
            self._guess = text, self._maker.answer(self._messages(text))

    def ask(self, asked: UserTurnReady) -> None:
        """Give the answer to a turn, from the guess if it had the same words."""
        self.foresee(asked.text)
        guess, self._guess = self._guess, None
        self.drop()
        self._said.append(Message("user", asked.text))
        if guess is not None:
            self._give(guess[1])

    def say(self, text: str) -> None:
        """Give a text to be spoken."""
        self._give(self._maker.say(text))

    def hum(self, text: str) -> Content | None:
        """Return the text as content."""
        return self._maker.say(text)

    def drop(self) -> None:
        """Cancel all content that was given."""
        wanted, self._wanted = self._wanted, []
        for content in wanted:
            content.cancel()

    def cut(self, text: str) -> None:
        """Record the text spoken before an interruption."""
        self._cut = text.strip()

    def said(self, text: str) -> None:
        """Append the spoken text to the history."""
        self._cut = ""
        if text.strip():
            self._said.append(Message("assistant", text.strip()))

    def turn(self, *, is_open: bool) -> None:
        """Do nothing: the history has no open turns."""

    def forget(self) -> None:
        """Do nothing: the history keeps the transcript."""

    def close(self) -> None:
        """Cancel the guess and all content."""
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
