"""The large tier: what is to be said, made while nobody waits for it, taken a unit at a time.

In: the dialogue so far, or a text. Out: ``Content``, which fills with audio and words as the language model
writes and the voice speaks, clause by clause, the first one as soon as the splitter lets it go. Whoever ticks
takes what a unit needs and never waits: what is not there yet is not said in this unit. A content that is not
wanted is cancelled, and its model and voice stop at their next piece.

Language models are asynchronous and belong to one event loop: a thread of the maker's own runs it. Voices
block and share an executor, in which nothing waits. No clause is spoken while ``lead_ms`` of audio wait to be
taken, and a content from which nobody takes anything for ``unwanted_s`` ends itself.

Slow: the unit is silent, and ``waited_ms`` grows. Dead: ``error`` says so, behind what was made before.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import aclosing, suppress

import numpy as np
from pydantic import Field

from core.errors import AgentError, EngineError
from core.media import pcm16_to_float
from core.strict_model import StrictModel
from models.llm import LanguageModel, Message
from models.tts import SpeechPiece, TextToSpeech
from models.tts.clauses import ClauseSettings, ClauseSplitter

ENGINE = "two_tier"
# An interruption for nothing is known as one after a second or two, and goes back by a word.
BEHIND_S = 3
BEHIND_WORDS = 16
# What a model that is asked has to end in, when the process does.
LEAVING_S = 1.0


def _nothing() -> None:
    """Nobody wants to know."""


class ContentSettings(StrictModel):
    """How far ahead of what is said something is made."""

    lead_ms: int = Field(4_000, ge=100, le=60_000, description="audio that waits to be taken, at most about")
    unwanted_s: float = Field(30.0, ge=1, le=600, description="content that nobody takes from is given up")
    clauses: ClauseSettings = ClauseSettings()


class Content:
    """One answer. Thread-safe: one side makes it, the other takes from it.

    Args:
        rate_hz: of its audio.
        is_aside: it is no part of the conversation, as a phrase that covers a silence.
        is_protected: only a stop word interrupts it.
    """

    def __init__(self, rate_hz: int, *, is_aside: bool = False, is_protected: bool = False) -> None:
        self._rate_hz = rate_hz
        self.is_aside, self.is_protected = is_aside, is_protected
        self._lock = threading.Lock()
        # Told from the taking side that there is room again, and that nobody wants any more.
        self.on_room: Callable[[], None] = _nothing
        self.on_cancel: Callable[[], object] = _nothing
        self._audio: deque[np.ndarray] = deque()
        self._held = self._taken = self._made = 0
        # What was taken last, as far back as ``rewind`` goes.
        self._behind: deque[np.ndarray] = deque()
        self._behind_samples = 0
        # Words with the samples of the whole at which each begins and ends, and the newest that were taken.
        self._words: deque[tuple[str, int, int | None]] = deque()
        self._begun: deque[tuple[str, int, int | None]] = deque(maxlen=BEHIND_WORDS)
        self._text = ""
        # Where the voice failed, and whether that was in what was taken last.
        self._breaks: deque[int] = deque()
        self._took_break = False
        self._is_made = self._is_cancelled = False
        self._error: Exception | None = None

    @property
    def text(self) -> str:
        """What was written so far."""
        return self._text

    @property
    def is_ready(self) -> bool:
        """Whether something of it can be said now."""
        return self._held > 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it will be said."""
        with self._lock:
            return self._is_cancelled or (self._is_made and not self._held)

    @property
    def took_break(self) -> bool:
        """Whether words are missing behind what was taken last: the voice failed."""
        return self._took_break

    @property
    def error(self) -> Exception | None:
        """Why it broke off; None while it did not."""
        return self._error

    @property
    def taken_ms(self) -> int:
        """How much of it was taken."""
        return self._taken * 1000 // self._rate_hz

    def take(self, samples: int) -> tuple[np.ndarray, str]:
        """So much of it, or what there is: (float32, (samples,), the words that begin in it)."""
        with self._lock:
            parts, left = [], samples
            while left and self._audio:
                part = self._audio.popleft()
                if len(part) > left:
                    self._audio.appendleft(part[left:])
                    part = part[:left]
                parts.append(part)
                left -= len(part)
            taken = samples - left
            self._held -= taken
            self._taken += taken
            words = []
            # Behind its end there are words that a voice placed behind its last sample.
            is_end = self._is_made and not self._held
            until = self._break_at(is_end)
            while self._words and (is_end or self._words[0][1] < self._taken):
                if not is_end and until is not None and self._words[0][1] >= until:
                    # Behind what is missing: with the next.
                    break
                self._begun.append(self._words.popleft())
                words.append(self._begun[-1][0])
            self._keep_behind(parts, taken)
        self.on_room()
        audio = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return audio, "".join(f" {word}" for word in words)

    def _break_at(self, is_end: bool) -> int | None:
        """Where the voice failed in what is taken now; None: nowhere."""
        until = None
        while self._breaks and (is_end or self._breaks[0] <= self._taken):
            until = self._breaks.popleft()
        self._took_break = until is not None
        return until

    def rewind(self, unheard: int) -> int:
        """Go back to the beginning of the word that was being heard; how many words come again.

        Args:
            unheard: so many samples that were taken last were not heard.
        """
        with self._lock:
            if self._is_cancelled:
                return 0
            heard = self._taken - unheard
            again = 0
            for _, began, ended in reversed(self._begun):
                # A word that was heard to its end stays heard; one whose end nobody knows comes again.
                if began < heard and ended is not None and ended <= heard:
                    break
                if self._taken - began > self._behind_samples:
                    break
                again += 1
                if began < heard:
                    break
            if not again:
                return 0
            back = left = self._taken - self._begun[-again][1]
            while left > 0:
                part = self._behind.pop()
                if len(part) > left:
                    self._behind.append(part[:-left])
                    part = part[-left:]
                self._audio.appendleft(part)
                left -= len(part)
            self._behind_samples -= back
            self._taken -= back
            self._held += back
            for _ in range(again):
                self._words.appendleft(self._begun.pop())
            return again

    def _keep_behind(self, parts: list[np.ndarray], samples: int) -> None:
        self._behind.extend(parts)
        self._behind_samples += samples
        while self._behind and self._behind_samples - len(self._behind[0]) >= BEHIND_S * self._rate_hz:
            self._behind_samples -= len(self._behind.popleft())

    def cancel(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._is_cancelled = True
            self._audio.clear()
            self._words.clear()
            self._breaks.clear()
            self._behind.clear()
            self._held = self._behind_samples = 0
        self.on_cancel()

    # For the maker.

    @property
    def is_wanted(self) -> bool:
        """Whether it was not cancelled."""
        return not self._is_cancelled

    def wrote(self, text: str) -> None:
        """The model wrote this."""
        self._text += text

    def add(self, piece: SpeechPiece, clause_began: int) -> bool:
        """A piece of a clause that begins at this sample; False when nobody wants more."""
        samples_per_ms = self._rate_hz / 1000
        for word in piece.words:
            began, ended = (clause_began + round(at * samples_per_ms) for at in (word.start_ms, word.end_ms))
            self.add_word(word.text, began, ended)
        return self.add_audio(pcm16_to_float(piece.pcm))

    def add_audio(self, audio: np.ndarray) -> bool:
        """More of it: float32, (samples,); False when nobody wants more."""
        with self._lock:
            if self._is_cancelled:
                return False
            if len(audio):
                self._audio.append(audio)
                self._held += len(audio)
                self._made += len(audio)
        return True

    def add_word(self, text: str, began: int, ended: int | None = None) -> None:
        """A word lies between these samples; words come in their order."""
        with self._lock:
            if not self._is_cancelled:
                self._words.append((text, began, ended))

    def broke_off(self) -> None:
        """The voice failed: what was to follow what is made so far is not said."""
        with self._lock:
            if not self._is_cancelled:
                self._breaks.append(self._made)

    @property
    def made_samples(self) -> int:
        """How much of it was made."""
        return self._made

    @property
    def held_samples(self) -> int:
        """What waits to be taken."""
        return self._held

    @property
    def taken_samples(self) -> int:
        """What was taken."""
        return self._taken

    def end(self, error: Exception | None = None) -> None:
        """Nothing more is made."""
        with self._lock:
            self._error = error
            self._is_made = True


class ContentMaker:
    """Makes contents for all conversations of a process.

    Args:
        llm: what answers.
        tts: what speaks.
        executor: threads for the voice, of whoever made them.
        settings: see the model.
    """

    def __init__(
        self,
        llm: LanguageModel,
        tts: TextToSpeech,
        *,
        executor: Executor,
        settings: ContentSettings | None = None,
    ) -> None:
        self._llm, self._tts = llm, tts
        self._executor = executor
        self._settings = settings or ContentSettings()
        self.rate_hz = tts.rate_hz
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="content", daemon=True)
        self._thread.start()

    def answer(self, messages: Sequence[Message]) -> Content:
        """What the model says to this dialogue. Returns at once."""
        return self._make(self._llm.reply(tuple(messages)))

    def say(self, text: str) -> Content:
        """This text."""

        async def written() -> AsyncIterator[str]:
            yield text

        return self._make(written())

    def close(self) -> None:
        """End the thread; contents that are being made end with it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                # A model that is asked in the middle of its stream takes more than a step to end.
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVING_S))
            self._loop.close()

    def _make(self, pieces: AsyncIterator[str]) -> Content:
        content = Content(self.rate_hz)
        made: Future[None] = asyncio.run_coroutine_threadsafe(self._fill(content, pieces), self._loop)
        content.on_cancel = made.cancel
        made.add_done_callback(lambda future: self._ended(content, future))
        return content

    @staticmethod
    def _ended(content: Content, future: Future[None]) -> None:
        if future.cancelled():
            content.end(EngineError("the process is ending", engine=ENGINE) if content.is_wanted else None)
            return
        error = future.exception()
        if error is not None and not isinstance(error, AgentError):
            error = EngineError(f"content was not made: {type(error).__name__}", engine=ENGINE)
        content.end(error if isinstance(error, Exception) else None)

    async def _fill(self, content: Content, pieces: AsyncIterator[str]) -> None:
        splitter = ClauseSplitter(self._settings.clauses)
        # A generator that is left in the middle is closed, which stops its model.
        async with aclosing(pieces) as written:  # type: ignore[type-var]  # an async generator
            async for piece in written:
                if not content.is_wanted:
                    return
                content.wrote(piece)
                for clause in splitter.push(piece):
                    if not await self._speak(content, clause):
                        return
        rest = splitter.flush()
        if rest.strip():
            await self._speak(content, rest)

    async def _speak(self, content: Content, clause: str) -> bool:
        """Whether more is wanted behind it."""
        if not clause.strip():
            return True
        if not await self._has_room(content):
            return False
        began = content.made_samples
        return await self._loop.run_in_executor(
            self._executor, self._tts.synthesize, clause, lambda piece: content.add(piece, began)
        )

    async def _has_room(self, content: Content) -> bool:
        """Return when less than the lead waits to be taken; False when nobody takes or wants anything."""
        room, lead = asyncio.Event(), self.rate_hz * self._settings.lead_ms // 1000
        content.on_room = lambda: self._tell(room)
        while content.is_wanted and content.held_samples >= lead:
            room.clear()
            taken = content.taken_samples
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.unwanted_s):
                    await room.wait()
            if content.taken_samples == taken and content.is_wanted:
                return False
        return content.is_wanted

    def _tell(self, room: asyncio.Event) -> None:
        # The process is ending when the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(room.set)
