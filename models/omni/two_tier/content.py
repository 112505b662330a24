"""Large tier: makes speech in the background, to be taken a unit at a time.

Input: the dialogue so far, or a text. Output: ``Content``, which fills with audio and words as the language
model writes and the voice speaks. It is made clause by clause, the first one as soon as the splitter
completes it. The engine takes the audio of a unit on each tick and never waits: audio that is late is not
part of this unit. A content that is no longer wanted is cancelled, and its model and voice stop at their next
piece.

Language models are asynchronous and belong to one event loop, which a thread of the maker runs. Voices block
and share an executor, in which no job waits. No clause is spoken while ``lead_ms`` of audio wait to be taken.
A content from which no audio is taken for ``unwanted_s`` ends itself.

Slow: the unit is silent. Dead: ``error`` holds the reason, after the audio that was made before.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import aclosing, suppress

import numpy as np
from pydantic import Field

from parley.core.errors import AgentError, EngineError
from parley.core.media import pcm16_to_float
from parley.core.strict_model import StrictModel
from parley.models.llm import LanguageModel, Message
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.models.tts.clauses import ClauseSettings, ClauseSplitter

ENGINE = "two_tier"
# How far ``rewind`` can go back. A false interruption is detected after a second or two, and goes back by a
# word.
PLAYED_S = 3
BEHIND_WORDS = 16
# Time in which a model must end its stream when the process ends.
LEAVING_S = 1.0


def _nothing() -> None:
    """No-op default callback."""


class ContentSettings(StrictModel):
    """Bounds on how far content is made ahead."""

    lead_ms: int = Field(
        4_000,
        ge=100,
        le=60_000,
        description="upper limit, approximately, of the audio that waits to be played",
    )
    unwanted_s: float = Field(
        30.0, ge=1, le=600, description="time after which content that is not played is discarded"
    )
    clauses: ClauseSettings = ClauseSettings()


class Content:
    """Speech of one answer. Thread-safe: one side makes it, the other takes from it.

    Args:
        rate_hz: rate of its audio.
        is_aside: it is not part of the conversation, such as a phrase that covers a silence.
        is_protected: only a stop word interrupts it.
        on_room: called by the taking side when there is room again.
        on_cancel: called by the taking side when the content is cancelled.
    """

    def __init__(
        self,
        rate_hz: int,
        *,
        is_aside: bool = False,
        is_protected: bool = False,
        on_room: Callable[[], None] = _nothing,
        on_cancel: Callable[[], object] = _nothing,
    ) -> None:
        self._rate_hz = rate_hz
        self.is_aside, self.is_protected = is_aside, is_protected
        self._lock = threading.Lock()
        self._on_room, self._on_cancel = on_room, on_cancel
        self._audio: deque[np.ndarray] = deque()
        self._held = self._taken = self._made = 0
        # Audio that was taken last, as far back as ``rewind`` goes.
        self._played: deque[np.ndarray] = deque()
        self._played_samples = 0
        # Words with the samples of the whole at which each begins and ends, and the newest words that were
        # taken.
        self._words: deque[tuple[str, int, int | None]] = deque()
        self._begun: deque[tuple[str, int, int | None]] = deque(maxlen=BEHIND_WORDS)
        self._text = ""
        # Places where the voice failed, and whether the last ``take`` contained one.
        self._breaks: deque[int] = deque()
        self._took_break = False
        self._is_made = self._is_cancelled = False
        self._error: Exception | None = None

    @property
    def text(self) -> str:
        """Text written so far."""
        return self._text

    @property
    def is_ready(self) -> bool:
        """True when audio of it can be taken now."""
        return self._held > 0

    @property
    def is_over(self) -> bool:
        """True when no more of it will be spoken."""
        with self._lock:
            return self._is_cancelled or (self._is_made and not self._held)

    @property
    def took_break(self) -> bool:
        """True when words are missing after the last take, because the voice failed."""
        return self._took_break

    @property
    def error(self) -> Exception | None:
        """Reason for which it broke off; None while it has not."""
        return self._error

    @property
    def taken_ms(self) -> int:
        """Duration that was taken."""
        return self._taken * 1000 // self._rate_hz

    def take(self, samples: int) -> tuple[np.ndarray, str]:
        """Take at most ``samples``: (float32, (samples,), the words that begin in it)."""
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
            # At the end also take words that a voice placed after its last sample.
            is_end = self._is_made and not self._held
            until = self._break_at(is_end)
            while self._words and (is_end or self._words[0][1] < self._taken):
                if not is_end and until is not None and self._words[0][1] >= until:
                    # Words after the gap come with the next take.
                    break
                self._begun.append(self._words.popleft())
                words.append(self._begun[-1][0])
            self._keep_played(parts, taken)
        self._on_room()
        audio = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return audio, "".join(f" {word}" for word in words)

    def _break_at(self, is_end: bool) -> int | None:
        """Return the place of a failure of the voice in this take; None without one."""
        until = None
        while self._breaks and (is_end or self._breaks[0] <= self._taken):
            until = self._breaks.popleft()
        self._took_break = until is not None
        return until

    def rewind(self, unheard: int) -> int:
        """Go back to the beginning of the word that was being heard; return the number of words to repeat.

        Args:
            unheard: number of samples taken last that were not heard.
        """
        with self._lock:
            if self._is_cancelled:
                return 0
            heard = self._taken - unheard
            again = 0
            for _, began, ended in reversed(self._begun):
                # A word that was heard in full is not repeated; one with an unknown end is.
                if began < heard and ended is not None and ended <= heard:
                    break
                if self._taken - began > self._played_samples:
                    break
                again += 1
                if began < heard:
                    break
            if not again:
                return 0
            back = left = self._taken - self._begun[-again][1]
            while left > 0:
                part = self._played.pop()
                if len(part) > left:
                    self._played.append(part[:-left])
                    part = part[-left:]
                self._audio.appendleft(part)
                left -= len(part)
            self._played_samples -= back
            self._taken -= back
            self._held += back
            for _ in range(again):
                self._words.appendleft(self._begun.pop())
            return again

    def _keep_played(self, parts: list[np.ndarray], samples: int) -> None:
        self._played.extend(parts)
        self._played_samples += samples
        while self._played and self._played_samples - len(self._played[0]) >= PLAYED_S * self._rate_hz:
            self._played_samples -= len(self._played.popleft())

    def cancel(self) -> None:
        """Drop the rest of the content and stop its making."""
        with self._lock:
            self._is_cancelled = True
            self._audio.clear()
            self._words.clear()
            self._breaks.clear()
            self._played.clear()
            self._held = self._played_samples = 0
        self._on_cancel()

    # Used by the maker.

    @property
    def is_wanted(self) -> bool:
        """True unless it was cancelled."""
        return not self._is_cancelled

    def wrote(self, text: str) -> None:
        """Append text that the model wrote."""
        self._text += text

    def add(self, piece: SpeechPiece, clause_began: int) -> bool:
        """Append a piece of a clause that begins at this sample; return False after a cancellation."""
        samples_per_ms = self._rate_hz / 1000
        for word in piece.words:
            began, ended = (clause_began + round(at * samples_per_ms) for at in (word.start_ms, word.end_ms))
            self.add_word(word.text, began, ended)
        return self.add_audio(pcm16_to_float(piece.pcm))

    def add_audio(self, audio: np.ndarray) -> bool:
        """Append audio: float32, (samples,); return False after a cancellation."""
        with self._lock:
            if self._is_cancelled:
                return False
            if len(audio):
                self._audio.append(audio)
                self._held += len(audio)
                self._made += len(audio)
        return True

    def add_word(self, text: str, began: int, ended: int | None = None) -> None:
        """Append a word that lies between these samples; words come in order."""
        with self._lock:
            if not self._is_cancelled:
                self._words.append((text, began, ended))

    def broke_off(self) -> None:
        """Record that the voice failed: the speech that was to follow the present end is missing."""
        with self._lock:
            if not self._is_cancelled:
                self._breaks.append(self._made)

    @property
    def made_samples(self) -> int:
        """Number of samples that were made."""
        return self._made

    @property
    def held_samples(self) -> int:
        """Number of samples that wait to be taken."""
        return self._held

    def end(self, error: Exception | None = None) -> None:
        """Record that no more is made."""
        with self._lock:
            self._error = error
            self._is_made = True


class ContentMaker:
    """Maker of contents for all conversations of a process.

    Args:
        llm: language model that answers.
        tts: voice.
        executor: threads for the voice; owned by their creator.
        settings: bounds.
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
        """Return the model's answer to this dialogue. Returns at once."""
        return self._make(self._llm.reply(tuple(messages)))

    def say(self, text: str) -> Content:
        """Return this text as speech. Returns at once."""

        async def written() -> AsyncIterator[str]:
            yield text

        return self._make(written())

    def close(self) -> None:
        """End the thread, and the contents that are being made."""
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
                # A model takes more than one step to end in the middle of its stream.
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVING_S))
            self._loop.close()

    def _make(self, pieces: AsyncIterator[str]) -> Content:
        room = asyncio.Event()
        # It is not taken from, or cancelled, before it is returned.
        content = Content(self.rate_hz, on_room=lambda: self._signal(room), on_cancel=lambda: made.cancel())
        made: Future[None] = asyncio.run_coroutine_threadsafe(self._fill(content, room, pieces), self._loop)
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

    async def _fill(self, content: Content, room: asyncio.Event, pieces: AsyncIterator[str]) -> None:
        splitter = ClauseSplitter(self._settings.clauses)
        # Closing the generator early stops its model.
        async with aclosing(pieces) as written:  # type: ignore[type-var]  # an async generator
            async for piece in written:
                if not content.is_wanted:
                    return
                content.wrote(piece)
                for clause in splitter.push(piece):
                    if not await self._speak(content, room, clause):
                        return
        rest = splitter.flush()
        if rest.strip():
            await self._speak(content, room, rest)

    async def _speak(self, content: Content, room: asyncio.Event, clause: str) -> bool:
        """Speak a clause; return whether more is wanted after it."""
        if not clause.strip():
            return True
        if not await self._has_room(content, room):
            return False
        began = content.made_samples
        return await self._loop.run_in_executor(
            self._executor, self._tts.synthesize, clause, lambda piece: content.add(piece, began)
        )

    async def _has_room(self, content: Content, room: asyncio.Event) -> bool:
        """Wait until less than the lead waits; return False when no audio is taken or wanted."""
        lead = self.rate_hz * self._settings.lead_ms // 1000
        while content.is_wanted and content.held_samples >= lead:
            room.clear()
            try:
                async with asyncio.timeout(self._settings.unwanted_s):
                    await room.wait()
            except TimeoutError:
                # The time alone decides: a signal may be of audio that was taken before the wait began.
                return False
        return content.is_wanted

    def _signal(self, room: asyncio.Event) -> None:
        # The loop is closed when the process is ending.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(room.set)
