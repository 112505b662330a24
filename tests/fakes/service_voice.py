"""Service of Pipecat for a voice, without a provider: each word is a tone, and faults are scripted."""

import asyncio
from collections.abc import AsyncGenerator
from enum import Enum, auto

from pipecat.frames.frames import Frame, TTSAudioRawFrame, TTSStoppedFrame
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from parley.evals.harness.services.tone import tone

PIECE_MS = 20


class Fault(Enum):
    """Fault of a clause."""

    NONE = auto()
    # Reports an error in place of audio.
    ERROR = auto()
    # Gives nothing.
    HANG = auto()
    # Gives ``cut_ms`` of audio and reports an error.
    CUT = auto()
    # Gives ``cut_ms`` of audio and nothing more.
    STALL = auto()
    # Gives zeros.
    SILENCE = auto()
    # Ends without audio.
    EMPTY = auto()
    # The connection is never made.
    NO_CONNECTION = auto()


class ScriptedTtsService(TTSService):
    """Voice that streams as a socket does: ``run_tts`` returns at once, and a task gives audio and words.

    Args:
        faults: faults of its clauses in order; the last one holds for all that follow.
        word_ms: length of every word.
        cut_ms: audio before a fault in mid-clause.
        timed: reports the times of its words.
        clauses: receives the text of every clause that it is asked for.
    """

    def __init__(
        self,
        faults: list[Fault],
        *,
        word_ms: int = 100,
        cut_ms: int = 250,
        timed: bool = True,
        clauses: list[str],
    ) -> None:
        super().__init__(
            push_text_frames=not timed,
            push_start_frame=True,
            stop_frame_timeout_s=60,
            settings=TTSSettings(model="tone", voice=None, language=None),
        )
        self._faults = list(faults)
        self._word_ms = word_ms
        self._cut_ms = cut_ms
        self._timed = timed
        self._clauses = clauses
        self._giving: asyncio.Task[None] | None = None

    async def setup(self, setup: FrameProcessorSetup) -> None:
        await super().setup(setup)
        if self._faults[0] is Fault.NO_CONNECTION:
            await asyncio.Event().wait()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._cancel()

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        await self._cancel()

    async def _cancel(self) -> None:
        giving, self._giving = self._giving, None
        if giving is not None:
            await self.cancel_task(giving)

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        self._clauses.append(text)
        fault = self._faults.pop(0) if len(self._faults) > 1 else self._faults[0]
        await self._cancel()
        self._giving = self.create_task(self._give(text, context_id, fault))
        yield None

    async def _give(self, text: str, context_id: str, fault: Fault) -> None:
        if fault is Fault.ERROR:
            await self.push_error("Error: {'status_code': 429}")
            return
        if fault is Fault.HANG:
            return
        words = text.split()
        whole_ms = 0 if fault is Fault.EMPTY else len(words) * self._word_ms
        is_cut = fault in (Fault.CUT, Fault.STALL)
        if self._timed:
            await self.add_word_timestamps(
                [(word, index * self._word_ms / 1000) for index, word in enumerate(words)], context_id
            )
        for start_ms in range(0, min(whole_ms, self._cut_ms) if is_cut else whole_ms, PIECE_MS):
            pcm = tone(start_ms, PIECE_MS, self.sample_rate)
            audio = bytes(len(pcm)) if fault is Fault.SILENCE else pcm
            await self.append_to_audio_context(
                context_id, TTSAudioRawFrame(audio, self.sample_rate, 1, context_id=context_id)
            )
        if fault is Fault.CUT:
            # After its audio, as a socket is read in order.
            await asyncio.sleep(0.01)
            await self.push_error("connection closed, but with an error")
        elif fault is not Fault.STALL:
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)
