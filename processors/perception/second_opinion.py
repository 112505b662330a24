"""Recogniser whose doubtful utterances another recogniser hears once more, before their words are delivered.

Input: the audio of a call's utterances. Output: the first recogniser's words, or the second one's in their
place. The second one hears an utterance where the bot would ask back for its low confidence
(``turn_taking.clarification``), and its words count where it is sure of them. Otherwise the first words are
delivered, and the bot asks back. It decides by utterance: whether the caller answers a short question of the
bot is not known here.

The audio of the utterance under way is kept, ``LONGEST_MS`` of it at most; a longer one is not heard again.
Everything runs on the loop, and the second engine where its owner has put it, for example in a child process.
A stream of the second engine is opened for one utterance. Late: after ``wait_ms`` the first words are
delivered. Full: at most ``MOST_WAITING`` utterances of all calls are heard a second time at once, because the
engine takes them one after the other; a further one keeps its first words. Dead: likewise, with a line in the
log. A task for each utterance is the result that the caller of ``finish`` has; ``close`` cancels it.
"""

import asyncio
from collections.abc import Callable

from loguru import logger

from parley.core.errors import ConfigError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.stt import Transcript
from parley.runtime.utterances import UtteranceEngine, UtteranceStream
from parley.turn_taking.clarification import AskBackSettings, is_doubtful

# Longest wait of a turn for the second recogniser. Whisper tiny.en decodes an utterance in half a second on
# an idle machine; a caller who has waited three times as long is better asked.
WAIT_MS = 1_500
# Utterances of all calls that are heard a second time at once: one process decodes as many within the wait.
MOST_WAITING = 3
# Longer utterances keep their first words: Whisper decodes them in parts, each as long as a whole one.
LONGEST_MS = 20_000


class SecondOpinion:
    """Second recogniser of a process, for the doubtful utterances of all its calls.

    Args:
        engine: the second recogniser; its owner starts and closes it.
        doubt: conditions of a doubtful utterance.
        sure_from: mean confidence from which its words count.
        wait_ms: longest wait for it.

    Attributes:
        engine: the second recogniser.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        doubt: AskBackSettings,
        *,
        sure_from: float = 0.0,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self.engine = engine
        self._doubt = doubt
        # The bot asks back below ``doubt.below``, whichever engine recognised the words.
        self._wanted = doubt.model_copy(update={"below": max(doubt.below, sure_from)})
        self._wait_s = wait_ms / 1_000
        self._waiting = 0

    @property
    def is_free(self) -> bool:
        """True when one more utterance may be heard a second time."""
        return self._waiting < MOST_WAITING

    async def settled(self, heard: Transcript, pcm: bytes) -> Transcript:
        """Return the transcript of an utterance that is over.

        Args:
            heard: of the first recogniser.
            pcm: its audio, 16-bit mono; empty where it was too long to be kept.
        """
        if not pcm or not self.is_free or not is_doubtful(self._doubt, heard.text, heard.confidences):
            return heard
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                again = await self._hear(pcm)
        except TimeoutError:
            logger.warning(f"the second recogniser took longer than {self._wait_s:g} s for an utterance")
            return heard
        except EngineError as error:
            logger.warning(f"the second recogniser did not hear an utterance: {error}")
            return heard
        finally:
            self._waiting -= 1
        is_sure = again.text and not is_doubtful(self._wanted, again.text, again.confidences)
        logger.info(
            f"an utterance of confidence {heard.confidence:.2f} was heard again with {again.confidence:.2f}"
        )
        return again if is_sure else heard

    async def _hear(self, pcm: bytes) -> Transcript:
        stream = await self.engine.open_stream(_ignore, _leave_to_result)
        try:
            stream.start()
            stream.feed(pcm)
            return await stream.finish()
        finally:
            stream.close()


class TwiceHeard:
    """Recogniser of a call whose doubtful utterances have a second opinion.

    Args:
        engine: recogniser of every utterance; its owner starts and closes it.
        opinion: of the process.

    Raises:
        ConfigError: the two take audio of different rates.
    """

    def __init__(self, engine: UtteranceEngine[Transcript], opinion: SecondOpinion) -> None:
        if engine.rate_hz != opinion.engine.rate_hz:
            raise ConfigError(
                f"hearing.second_opinion takes audio at {opinion.engine.rate_hz} Hz, and hearing.stt at "
                f"{engine.rate_hz} Hz"
            )
        self._engine, self._opinion = engine, opinion

    @property
    def rate_hz(self) -> int:
        return self._engine.rate_hz

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        """Return a stream of the first engine whose doubtful utterances the second one hears as well.

        Raises:
            EngineError: the first engine opens none by its deadline.
        """
        stream = await self._engine.open_stream(on_partial, on_failure)
        return _TwiceHeardStream(self._opinion, stream, self.rate_hz)


class _TwiceHeardStream:
    """Stream of the first recogniser that keeps the audio of the utterance under way."""

    def __init__(self, opinion: SecondOpinion, stream: UtteranceStream[Transcript], rate_hz: int) -> None:
        self._opinion, self._stream = opinion, stream
        self._most = ms_to_samples(LONGEST_MS, rate_hz) * PCM_BYTES_PER_SAMPLE
        # None outside an utterance, and in one that is too long.
        self._audio: bytearray | None = None
        self._results: set[asyncio.Task[Transcript]] = set()

    @property
    def failure(self) -> EngineError | None:
        return self._stream.failure

    @property
    def dropped_ms(self) -> int:
        return self._stream.dropped_ms

    @property
    def waiting_ms(self) -> int:
        return self._stream.waiting_ms

    def start(self) -> None:
        self._audio = bytearray()
        self._stream.start()

    def feed(self, pcm: bytes) -> None:
        self._stream.feed(pcm)
        if self._audio is not None:
            self._audio += pcm
            if len(self._audio) > self._most:
                self._audio = None

    def finish(self) -> "asyncio.Future[Transcript]":
        audio, self._audio = bytes(self._audio or b""), None
        result = asyncio.create_task(self._settle(self._stream.finish(), audio), name="second_opinion.result")
        self._results.add(result)
        result.add_done_callback(self._results.discard)
        return result

    def discard(self) -> None:
        self._audio = None
        self._stream.discard()

    def close(self) -> None:
        self._audio = None
        self._stream.close()
        for result in tuple(self._results):
            result.cancel()

    async def _settle(self, first: "asyncio.Future[Transcript]", audio: bytes) -> Transcript:
        return await self._opinion.settled(await first, audio)


def _ignore(_partial: Transcript) -> None:
    """Ignore a partial result: only the whole utterance counts."""


def _leave_to_result(_error: EngineError) -> None:
    """Leave a failure to the result, which fails with it."""
