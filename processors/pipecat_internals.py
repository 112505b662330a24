"""The only access to private members of Pipecat, for the processors.

Functions reach private state of a service or an aggregator of Pipecat. Mixins turn a private method that has
to be overridden into a public one. A mixin precedes Pipecat's class among the bases; that class calls the
private method, and the public one of the mixin does by default what Pipecat's does.

Nothing else in this folder touches a private member of a library, which ``scripts/check_foreign_members.py``
checks. ``tests/contracts/test_foreign_members.py`` lists every member that is used here, and fails with its
name when a version of Pipecat has lost it. How to upgrade it: docs/how-to/upgrade_pipecat.md.

The module imports no service: the deployment decides which of them a process needs. It holds no state.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipecat.audio.vad.vad_analyzer import VADState
from pipecat.frames.frames import (
    AggregatedTextFrame,
    AudioRawFrame,
    LLMMessagesAppendFrame,
    TextFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.worker_observer import WorkerObserver
from pipecat.utils.string import TextPartForConcatenation
from websockets.exceptions import ConnectionClosed, WebSocketException

if TYPE_CHECKING:
    from pipecat.classifiers.base_classifier import (
        BaseClassifier,
        ClassifierImage,
        ClassifierQuestion,
        ClassifierResult,
    )
    from pipecat.frames.frames import InputAudioRawFrame, LLMContextFrame
    from pipecat.metrics.metrics import LLMTokenUsage
    from pipecat.observers.base_observer import FrameProcessed, FramePushed
    from pipecat.pipeline.worker import PipelineWorker
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.processors.aggregators.llm_response_universal import (
        LLMAssistantAggregator,
        LLMUserAggregator,
    )
    from pipecat.processors.audio.vad_processor import VADProcessor
    from pipecat.processors.frame_processor import FrameProcessor, FrameProcessorSetup
    from pipecat.processors.frameworks.rtvi import RTVIProcessor
    from pipecat.processors.frameworks.rtvi.models import (
        LLMFunctionCallResultData,
        SendFileData,
        SendTextData,
    )
    from pipecat.services.llm_service import LLMService
    from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
    from pipecat.services.stt_service import STTService, WebsocketSTTService
    from pipecat.services.tts_service import TTSService
    from pipecat.utils.text.base_text_aggregator import BaseTextAggregator

    from parley.processors.dialogue.engine_llm import ReadAheadFrame
else:
    BaseClassifier = LLMAssistantAggregator = OpenAIRealtimeLLMService = RTVIProcessor = object
    STTService = TTSService = WebsocketSTTService = object

# Voice activity.


async def end_voice(processor: "VADProcessor") -> None:
    """End the speech of a caller whose audio has ended.

    Pipecat does it by a timer of its own only, which a stop of the process makes due.
    """
    controller = processor._vad_controller
    if controller._vad_state is VADState.SPEAKING:
        controller._vad_state = VADState.QUIET
        await controller._call_event_handler("on_speech_stopped")


async def judge_audio(processor: "VADProcessor", frame: "InputAudioRawFrame") -> None:
    """Look for a voice in audio that the processor has got otherwise than as a frame of the pipeline."""
    await processor._vad_controller.process_frame(frame)


# Observers.


class PushedFramesObserver(WorkerObserver):
    """Observers of a call, which read pushed frames that are not audio.

    Pipecat queues every frame for each observer at every processor, once when it is pushed and once when it
    is processed, and a task takes it out again. No observer here reads that a frame is processed. RTVI's
    reads audio for its level alone, which no call reports.
    """

    async def on_push_frame(self, data: "FramePushed") -> None:
        if not isinstance(data.frame, AudioRawFrame):
            await super().on_push_frame(data)

    async def on_process_frame(self, data: "FrameProcessed") -> None:
        """Do nothing."""


def observe_what_is_read(worker: "PipelineWorker") -> None:
    """Give a worker a ``PushedFramesObserver`` before it runs; Pipecat has no way to choose the class."""
    worker._observer.__class__ = PushedFramesObserver


# Services of vendors.


def report_lost_connections(service: "FrameProcessor") -> None:
    """Have a service report a lost connection at once, in place of reconnecting for up to a minute.

    Its constructor has an argument for it, which the constructors of services take in their own ways.
    """
    from pipecat.services.websocket_service import WebsocketService

    if isinstance(service, WebsocketService):
        service._reconnect_on_error = False


# Language models.


def ask_with(frame: "LLMContextFrame | ReadAheadFrame", context: "LLMContext") -> None:
    """Give a request, or words to be read ahead, another context on the way to a service.

    A handler of ``on_before_process_frame`` gets the frame and cannot return another one.
    """
    frame.context = context


async def push_llm_text(service: "LLMService[Any]", text: str) -> None:
    """Push a piece of a reply as Pipecat's services do: measured, and filtered where a turn is not whole."""
    await service._push_llm_text(text)


def sdk_client(service: Any) -> Any:
    """Return the client of a vendor's SDK that a service has made, which the service never closes."""
    return service._client


@contextmanager
def seeing_answers(resource: Any, see: Callable[[Mapping[str, Any], object], None]) -> Iterator[None]:
    """Show each request of an SDK's resource with its answer, of which Pipecat keeps the text, in the block.

    ``resource`` belongs to the client of one service; a client of the call itself streams.
    """
    create = resource.create

    async def seen(**fields: Any) -> Any:
        answer = await create(**fields)
        see(fields, answer)
        return answer

    resource.create = seen
    try:
        yield
    finally:
        # The method of its class again.
        del resource.create


# The caller's words.


class VoiceEdges(STTService):
    """Mixin: beginnings and ends of a voice, which the base class uses for its own measurements."""

    async def voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        """Begin an utterance."""
        await super()._handle_vad_user_started_speaking(frame)

    async def voice_stopped(self, frame: VADUserStoppedSpeakingFrame) -> None:
        """End an utterance."""
        await super()._handle_vad_user_stopped_speaking(frame)

    async def _handle_vad_user_started_speaking(self, frame: VADUserStartedSpeakingFrame) -> None:
        await self.voice_started(frame)

    async def _handle_vad_user_stopped_speaking(self, frame: VADUserStoppedSpeakingFrame) -> None:
        await self.voice_stopped(frame)


# A recogniser that does not read for so long has failed; its messages are dropped, and words stay away.
SEND_S = 2.0


class SocketRecogniser(WebsocketSTTService):
    """Mixin: the WebSocket of a recogniser, which the base class opens again when it is lost.

    A message that ``take_message`` cannot read counts as a lost connection.
    """

    # Receives until the connection ends for good.
    receiving: "asyncio.Task[None] | None" = None

    @abstractmethod
    def address(self) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a request for a connection."""

    @abstractmethod
    async def connected(self) -> None:
        """Begin a stream: a connection is open, the first or another one."""

    @abstractmethod
    async def take_message(self, message: str | bytes) -> None:
        """Handle a message of the server.

        Raises:
            PeerError: it is none of the protocol.
        """

    @abstractmethod
    async def keep_alive(self) -> None:
        """Send silence: the caller's audio has been muted for ``keepalive_timeout``."""

    async def send_messages(self, messages: Iterable[bytes | str]) -> bool:
        """Send messages in order; return False without a connection, or when the server does not read.

        Bytes are a binary message, and a string is a text message.
        """
        if self._websocket is None:
            return False
        try:
            async with asyncio.timeout(SEND_S):
                for message in messages:
                    await self._websocket.send(message)
        except (ConnectionClosed, TimeoutError):
            return False
        return True

    async def setup(self, setup: "FrameProcessorSetup") -> None:  # type: ignore[override]  # as Pipecat's own
        await super().setup(setup)
        await self._connect()

    async def _connect(self) -> None:
        await self._connect_websocket()
        await super()._connect()
        if self.receiving is None:
            self.receiving = self.create_task(self._receive_task_handler(self._report_error), "receiver")

    async def _disconnect(self) -> None:
        await super()._disconnect()
        receiving, self.receiving = self.receiving, None
        if receiving is not None:
            await self.cancel_task(receiving)
        await self._disconnect_websocket()

    async def _connect_websocket(self) -> None:
        url, headers = self.address()
        try:
            self._websocket = await self._websocket_connect(url, additional_headers=headers)
        except (OSError, TimeoutError, WebSocketException) as error:
            self._websocket = None
            await self.push_error(f"no connection to {url}: {error}", exception=error)
            return
        await self.connected()

    async def _disconnect_websocket(self) -> None:
        websocket, self._websocket = self._websocket, None
        if websocket is not None:
            await websocket.close()

    async def _send_keepalive(self, silence: bytes) -> None:
        await self.keep_alive()

    async def _receive_messages(self) -> None:
        if self._websocket is None:
            raise ConnectionError("no connection")
        async for message in self._websocket:
            await self.take_message(message)


def record_audio_usage(service: "STTService", audio: bytes) -> None:
    """Count audio that was recognised; the base class counts only that of its ``process_audio_frame``."""
    service._record_stt_audio_usage(audio)


# The bot's voice.


class AnnouncedText(TTSService):
    """Mixin: a text on its way to the engine, and its announcement to subscribers."""

    async def take_text(self, frame: AggregatedTextFrame, context_id: str | None = None) -> None:
        """Speak a text, or announce it where its kind is skipped."""
        await super()._handle_aggregated_text(frame, context_id)

    async def announce(self, frame: AggregatedTextFrame, context_id: str) -> None:
        """Announce a text whose speech begins."""
        await super()._announce_text(frame, context_id)

    async def _handle_aggregated_text(
        self, src_frame: AggregatedTextFrame, context_id: str | None = None
    ) -> None:
        await self.take_text(src_frame, context_id)

    async def _announce_text(self, src_frame: AggregatedTextFrame, context_id: str) -> None:
        await self.announce(src_frame, context_id)


def set_text_aggregator(service: "TTSService", aggregator: "BaseTextAggregator") -> None:
    """Have text cut by an aggregator of ours; the constructor has no argument for one."""
    service._text_aggregator = aggregator  # type: ignore[assignment]


def forget_untimed_words(service: "TTSService", *, keep: Collection[str]) -> None:
    """Forget the words without times of an engine, in all contexts but these: they would count as spoken."""
    service._aggregated_frame_sequencer.clear(keep_contexts=set(keep))


def hold_word_clock(service: "TTSService", until_ns: int) -> None:
    """Give text without times at least this time: by default it has that of the last word."""
    tracker = service._word_timestamp_tracker
    tracker.last_pts = max(tracker.last_pts, until_ns)


def end_context_with_turn(service: "TTSService") -> None:
    """Have the context end with its turn, whatever its last clause was.

    Pipecat does this only for an engine whose last audio came from within ``run_tts``.
    """
    service._is_yielding_frames_synchronously = True


def keep_context(service: "TTSService", context_id: str) -> None:
    """Keep a quiet context open."""
    service._refresh_audio_context(context_id)


def protected_contexts(service: "TTSService") -> set[str]:
    """Return the contexts that an interruption leaves."""
    return {key for key, context in service._tts_contexts.items() if not context.interruptible}


# The dialogue.


class CollectedText(LLMAssistantAggregator):
    """Mixin: the bot's words on their way into the context."""

    async def collect(self, frame: TextFrame) -> None:
        """Collect the words of a frame."""
        await super()._handle_text(frame)

    async def _handle_text(self, frame: TextFrame) -> None:
        await self.collect(frame)


def paired_with(user: "LLMUserAggregator | None") -> dict[str, Any]:
    """Return the argument that joins the halves of Pipecat's pair, which otherwise makes both itself."""
    return {"_paired_user_aggregator": user}


def add_words(aggregator: "LLMAssistantAggregator", text: str) -> None:
    """Add whole words to the reply that is being collected."""
    aggregator._aggregation.append(TextPartForConcatenation(text, includes_inter_part_spaces=False))


class ClassifierAnswers(BaseClassifier):
    """Mixin: the answer of a classifier, which the base class measures."""

    @abstractmethod
    async def answer(
        self,
        state: str | dict[str, Any] | list[Any],
        questions: "Mapping[str, ClassifierQuestion]",
    ) -> "dict[str, ClassifierResult]":
        """Answer questions about a state."""

    async def _ask(
        self,
        state: str | dict[str, Any] | list[Any],
        questions: "Mapping[str, ClassifierQuestion]",
        images: "Sequence[ClassifierImage]" = (),
    ) -> "tuple[dict[str, ClassifierResult], LLMTokenUsage | None]":
        return await self.answer(state, questions), None


# Messages of a client.


class ClientRequests(RTVIProcessor):
    """Mixin: requests of a client; the base class acts before any other processor has seen the request."""

    async def take_text(self, data: "SendTextData", message_id: str, user_id: str | None = None) -> None:
        """Handle text that was typed."""
        await super()._handle_send_text(data, message_id, user_id)

    async def take_file(self, data: "SendFileData", message_id: str) -> None:
        """Handle a file."""
        await super()._handle_send_file(data, message_id)

    async def take_function_result(self, data: "LLMFunctionCallResultData") -> None:
        """Handle the result of a function that the client has run."""
        await super()._handle_function_call_result(data)

    async def refuse(self, message_id: str, reason: str) -> None:
        """Answer a message with an error; the public way takes one kind of message only."""
        await self._send_error_response(message_id, reason)

    async def _handle_send_text(
        self, data: "SendTextData", message_id: str, user_id: str | None = None
    ) -> None:
        await self.take_text(data, message_id, user_id)

    async def _handle_send_file(self, data: "SendFileData", message_id: str) -> None:
        await self.take_file(data, message_id)

    async def _handle_function_call_result(self, data: "LLMFunctionCallResultData") -> None:
        await self.take_function_result(data)


# OpenAI's realtime service.


class RealtimeEvents(OpenAIRealtimeLLMService):
    """Mixin: reports of the provider, and messages that are appended to the dialogue."""

    async def voice_started(self, event: Any) -> None:
        """Handle that the provider detects a voice."""
        await super()._handle_evt_speech_started(event)

    async def response_created(self, event: Any) -> None:
        """Handle that a response begins."""
        await super()._handle_evt_response_created(event)

    async def audio_came(self, event: Any) -> None:
        """Handle a piece of a response's audio."""
        await super()._handle_evt_audio_delta(event)

    async def append_messages(self, frame: LLMMessagesAppendFrame) -> None:
        """Send messages that were appended, as the application's words."""
        await super()._handle_messages_append(frame)

    async def messages_ended(self, error: Exception | None) -> None:
        """Handle that nothing of the provider is read any more: its socket is closed, or ``error``."""

    async def _receive_task_handler(self) -> None:
        error: Exception | None = None
        try:
            await super()._receive_task_handler()
        except Exception as raised:
            error = raised
        if not self._disconnecting:
            await self.messages_ended(error)

    @property
    def takes_messages(self) -> bool:
        """True when the provider has the dialogue; until then appended messages go with the context."""
        return self._api_session_ready and not self._llm_needs_conversation_setup

    async def send_callers_words(self, text: str) -> None:
        """Send words as the caller's, to be answered with the next response."""
        await self._send_message_item(text, role="user")
        self._results_awaiting_response = True

    async def _handle_evt_speech_started(self, evt: Any) -> None:
        await self.voice_started(evt)

    async def _handle_evt_response_created(self, evt: Any) -> None:
        await self.response_created(evt)

    async def _handle_evt_audio_delta(self, evt: Any) -> None:
        await self.audio_came(evt)

    async def _handle_messages_append(self, frame: LLMMessagesAppendFrame) -> None:
        await self.append_messages(frame)
