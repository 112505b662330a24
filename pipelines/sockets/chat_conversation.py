"""Questions and answers of one client of a turn-based socket (``chat_sockets`` holds its conversation).

Input: requests of the client. A question is committed as a typed turn, in words: recordings are transcribed,
pictures decoded. Output: its answer piece by piece, as text and by the deployment's voice, and the message
that follows it. Work ends at once when the client stops it or leaves; the session has the delivered part.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import CallEnding, CallEvent, TextGiven, TierChanged
from parley.core.client_rules import ClientRules
from parley.core.errors import (
    AgentError,
    CapacityError,
    EngineError,
    MediaError,
    OversizedError,
    StoreUnavailableError,
)
from parley.core.passage_notes import CitedPassage, cited_as_json
from parley.core.pictures import Picture
from parley.core.tiers import Tier
from parley.core.tuning import tuned
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import Memory
from parley.pipelines.lifecycle import LIMITED, LOST, OVER_LIMIT, USED_UP
from parley.pipelines.recordings import decoded_pcm, joined, understood, understood_by_service
from parley.pipelines.session_tiers import session_tiers
from parley.pipelines.sockets.chat_speech import Spoken, open_speech
from parley.pipelines.text.shown_history import brought_turns, parted_from, pictures_of, take_share, texts_of
from parley.pipelines.text.typed_turns import (
    AnswerCommitted,
    AnswerPiece,
    TurnCommitted,
    TurnHeld,
    TypedEvent,
    ask,
    context_of,
)
from parley.protocols.chat_ws import (
    AUDIO_RATE_HZ,
    ChatParts,
    ChatRequest,
    PictureItem,
    given,
)
from parley.protocols.client_protocol import BROKEN, REFUSED, SHUTDOWN, STOPPING, Message, ProtocolError
from parley.runtime.event_stream import CallEvents, EventQueue
from parley.serving.gateway.auth.tenants import TenantLimitError
from parley.serving.gateway.limits import ShareError
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event
from parley.session_store.history import DisplayedMessage, Parting
from parley.telemetry.call_metrics import count_ends
from parley.transports.websocket.messages import ChatSocketTuning, MessageSocket

TRANSPORT = "chat"
# Words of recordings that a client sends with every request; the least recently used are forgotten.
KNOWN_RECORDINGS = 256
FLOAT_BYTES = 4
# Texts of a human that wait for the next answer to this client; the oldest are dropped.
MOST_GIVEN = 32
# Each is decoded once; a message of 4 MB holds no more photographs than that.
MOST_PICTURES = 16
# Reason of an end for which the server has no room.
FULL = "service_unavailable"
IGNORED = "instructions of a client without the grant for them are ignored; the conversation continues"

T = TypeVar("T")


class ClientHaltedError(Exception):
    """Raised when the client stops the work, or has left."""


@dataclass(slots=True)
class ChatQuestion:
    """Committed turn that is to be answered.

    Attributes:
        given: the request.
        answer: generator of ``ask``, after ``TurnCommitted``.
        cached_tokens: tokens of the question in the model's cache; None where the model does not report them.
        read_tokens: tokens of the question that were read anew; None likewise.
    """

    given: ChatParts
    answer: AsyncGenerator[TypedEvent, None]
    cached_tokens: int | None = None
    read_tokens: int | None = None


@dataclass(slots=True)
class _Made:
    """Parts of an answer made so far.

    Attributes:
        text: text that was delivered, or is kept for the end.
        audio: audio that is kept for the end.
        voice_error: reason for which there is no more audio.
        generated_tokens: tokens of a complete answer, where the model reports them.
        passages: passages that a complete answer rests on.
        is_held: true when a human has the session, and no model answers.
    """

    text: str = ""
    audio: list[bytes] = field(default_factory=list)
    voice_error: str = ""
    generated_tokens: int | None = None
    passages: tuple[CitedPassage, ...] = ()
    is_held: bool = False


class ChatConversation:
    """Conversation of one client."""

    def __init__(
        self,
        engines: Engines,
        conversations: Conversations,
        conversation: Conversation,
        socket: MessageSocket[Any],
        memory: Memory | None,
        rules: ClientRules,
    ) -> None:
        self.session_id = conversation.session_id
        self._engines = engines
        self._store = conversations.store
        self._conversation = conversation
        self._socket = socket
        self._memory = memory
        self._settings = tuned(ChatSocketTuning, engines.deployment.sockets)
        self._rules = rules
        # Instruction of this client while it is connected; the session's next client begins with the
        # deployment's.
        self._instruction: str | None = None
        self.events = CallEvents()
        count_ends(self.events, engines.metrics)
        # This side has decided the end; the first reason holds.
        self._is_ending = False
        # The protocol leads its client to no other medium.
        self._tiers = session_tiers(engines.deployment, conversation)
        # Words of a human for this client; its protocol delivers them only as an answer.
        self._given: EventQueue[CallEvent] = self.events.open_queue(TextGiven, size=MOST_GIVEN)
        self.events.subscribe(TierChanged, self._on_tier_changed)
        self._recordings: BoundedDict[str, str] = BoundedDict(KNOWN_RECORDINGS)

    @property
    def is_lost(self) -> bool:
        """True when another process holds the session."""
        return self._conversation.lost.is_set()

    def end(self, reason: str, message: str) -> None:
        """Note that this side ends the conversation, with the reason and the message of ``CallEnding``."""
        if not self._is_ending:
            self._is_ending = True
            self.events.publish(CallEnding(self.events.now_ms(), reason, message))

    def end_as(self, failed: AgentError) -> None:
        """Note that a failure or a refusal ends the conversation."""
        if self.is_lost:
            self.end(LOST, str(self._conversation.loss))
        elif isinstance(failed, ProtocolError):
            self.end(LIMITED if failed.code == LIMITED else REFUSED[0], str(failed))
        elif isinstance(failed, TenantLimitError):
            self.end(USED_UP[0], str(failed))
        elif isinstance(failed, ShareError):
            self.end(LIMITED, str(failed))
        elif isinstance(failed, CapacityError):
            self.end(FULL, str(failed))
        else:
            self.end(BROKEN[0], str(failed))

    def note_left(self) -> None:
        """Note the reason for which no more is read of the client, where it is one of this side."""
        if self._socket.given_up is not None:
            self.end(*self._socket.given_up)
        elif self._engines.shutdown.stopping.is_set():
            # Its socket was closed here.
            self.end(SHUTDOWN, STOPPING[1])

    # Questions.

    async def begin(self, request: ChatRequest) -> ChatQuestion:
        """Commit a turn, and have the model read it.

        Raises:
            ProtocolError: the turn cannot be answered here.
            AgentError: a step failed.
        """
        asked = given(request, sees=self._engines.answering.sees)
        # Before pictures are decoded, which one thread does for all clients.
        self._check_allowance()
        *shown, last = await self._understood(asked)
        try:
            async with asyncio.timeout(self._settings.answer_s):
                return await self._begin(asked, shown, last)
        except TimeoutError:
            raise EngineError(
                f"the previous turn is still being answered after {self._settings.answer_s:g} s",
                engine="language model",
            ) from None

    def _check_allowance(self) -> None:
        if not self._engines.answering.usage.has_request(self._rules.counted):
            raise ProtocolError(OVER_LIMIT, code=LIMITED)

    async def _begin(
        self, asked: ChatParts, shown: list[DisplayedMessage], last: DisplayedMessage
    ) -> ChatQuestion:
        conversation = self._conversation
        async with conversation.turn:
            self._check_allowance()
            parted = await self._parting(asked, shown)
            self._instruct(asked.instruction)
            try:
                shown_pictures = (*pictures_of(parted), *last.pictures)
                take_share(conversation, (*texts_of(parted), last.text), shown_pictures)
            except OversizedError as error:
                raise ProtocolError(f"messages: {error}", code="too_large", param="messages") from error
            brought = brought_turns(conversation, parted, transport=TRANSPORT, mark=self._rules.mark)
            if brought:
                await conversation.in_time(conversation.append(*brought))
            answer = ask(
                conversation,
                self._engines.answering,
                last.text,
                store=self._store,
                answer_timeout_s=self._settings.answer_s,
                transport=TRANSPORT,
                supersedes=() if brought else parted.supersedes,
                instruction=self._instruction,
                memory=self._memory,
                rules=self._rules,
                tiers=self._tiers,
                pictures=last.pictures,
                is_counted=True,
            )
            try:
                said = await anext(answer)
                assert isinstance(said, TurnCommitted)
                question = ChatQuestion(asked, answer)
                await self._read(question, said.turn)
            except BaseException:
                await answer.aclose()
                raise
        return question

    async def _understood(self, asked: ChatParts) -> list[DisplayedMessage]:
        """Return the dialogue in words, with its pictures.

        Raises:
            ProtocolError: a recording or a picture is invalid, or there is nothing to answer.
            EngineError: a recording was not transcribed in time.
        """
        left_bytes = int(self._settings.most_audio_s * AUDIO_RATE_HZ) * FLOAT_BYTES
        said: list[DisplayedMessage] = []
        shown = [item for part in asked.parts for item in part.pictures]
        if len(shown) > MOST_PICTURES:
            where = shown[MOST_PICTURES].where
            raise ProtocolError(
                f"{where}: over {MOST_PICTURES} pictures in a request", code="too_large", param=where
            )
        for part in asked.parts:
            texts: list[str] = []
            for piece in part.pieces:
                if isinstance(piece, str):
                    texts.append(piece)
                    continue
                where, data = piece
                left_bytes -= len(data) * 3 // 4
                if left_bytes < 0:
                    raise ProtocolError(
                        f"{where}: over {self._settings.most_audio_s:g} s of audio in total",
                        code="too_large",
                        param=where,
                    )
                texts.append(await self._words(where, data))
            pictures = [await self._picture(item) for item in part.pictures]
            said.append(DisplayedMessage(part.role, joined(texts), tuple(pictures)))
        if not said[-1].text and not said[-1].pictures:
            where = asked.parts[-1].where
            raise ProtocolError(f"{where}: no speech was recognised", code="invalid_payload", param=where)
        # An earlier recording without words is not a turn.
        return [each for each in said if each.text or each.pictures]

    async def _picture(self, item: PictureItem) -> Picture:
        try:
            return await self._engines.answering.pictures.read(item.data, find=self._conversation.picture)
        except MediaError as error:
            raise ProtocolError(f"{item.where}: {error}", code="invalid_payload", param=item.where) from error

    async def _words(self, where: str, data: str) -> str:
        def decoded() -> tuple[str, bytes]:
            pcm = decoded_pcm(data, where, most_bytes=len(data))
            return hashlib.sha256(pcm).hexdigest(), pcm

        digest, pcm = await asyncio.to_thread(decoded)
        words = self._recordings.get(digest)
        if words is None:
            words = await self._heard(pcm)
        self._recordings[digest] = words
        return words

    async def _heard(self, pcm: bytes) -> str:
        recogniser, within_s = self._engines.recogniser, self._settings.hear_s
        if recogniser is None:
            return await understood_by_service(self._engines.build_stt, pcm, within_s=within_s)
        return await understood(recogniser, pcm, within_s=within_s)

    async def _parting(self, asked: ChatParts, shown: list[DisplayedMessage]) -> Parting:
        if not asked.is_whole:
            return Parting(tuple(shown), ())
        return await parted_from(self._conversation, self._store, shown, transport=TRANSPORT)

    def _instruct(self, wished: str | None) -> None:
        """Use the client's addition to the prompt, where it may instruct, until the client sends another."""
        if wished is None:
            return
        if not self._rules.may_instruct:
            if self._rules.note_ignored():
                logger.info(IGNORED)
            return
        self._rules.add_text()
        self._instruction = wished

    def unused(self, question: ChatQuestion) -> list[str]:
        """Return the parts of a question that have no effect here, as a list for its client."""
        unused = list(question.given.unused)
        if question.given.instruction is not None and not self._rules.may_instruct:
            unused.append("messages: those of the system; the prompt is the deployment's")
        return unused

    async def _read(self, question: ChatQuestion, turn: Event) -> None:
        if self._memory is None:
            return
        instruction = self._engines.answering.instruction(self._instruction)
        try:
            async with asyncio.timeout(self._settings.prefill_s):
                read = await self._memory.prefill(context_of(self._conversation, turn), instruction)
        except TimeoutError:
            raise EngineError(
                f"the question was not read within {self._settings.prefill_s:g} s", engine="language model"
            ) from None
        question.cached_tokens, question.read_tokens = read.cached_tokens, read.input_tokens

    # Answers.

    async def answer(self, question: ChatQuestion, made: _Made, *, speaks: bool) -> None:
        """Make the answer, and deliver it piece by piece.

        Raises:
            AgentError: no answer was made, or it broke off.
        """
        spoken = open_speech(self._engines) if speaks else None
        speaking = None
        if spoken is not None:
            speaking = asyncio.create_task(self._speak(spoken, question, made), name="chat.voice")
        try:
            async with self._conversation.turn, aclosing(question.answer) as answer:
                async for event in answer:
                    if isinstance(event, AnswerPiece):
                        await self._deliver(event.text, question, made, spoken)
                    elif isinstance(event, AnswerCommitted):
                        made.passages = event.passages
                    made.is_held = made.is_held or isinstance(event, TurnHeld)
            if made.is_held:
                # The turn is free meanwhile: the caller may write again elsewhere.
                await self._deliver(await self._words_of_human(), question, made, spoken)
            else:
                # The model answers: what a human said before answers no question any more.
                self._given.take_all()
            if self._memory is not None and not made.is_held:
                made.generated_tokens = self._memory.generated_tokens(made.text)
            if spoken is not None and speaking is not None:
                spoken.end()
                await speaking
        finally:
            if speaking is not None:
                speaking.cancel()
                await asyncio.wait({speaking})

    async def _deliver(self, text: str, question: ChatQuestion, made: _Made, spoken: Spoken | None) -> None:
        """Deliver a piece of the answer in writing, and by the voice."""
        if not text:
            return
        made.text += text
        if question.given.streaming:
            await self._socket.send({"type": "chunk", "text_delta": text})
        if spoken is not None:
            spoken.write(text)

    async def _words_of_human(self) -> str:
        """Return all words that wait for this client; wait for some of the human when none are theirs.

        They are empty when none come in time.
        """
        given = self._given.take_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._tiers.human.settings.reply_s):
                while self._conversation.tier.is_held and not any(_is_by_human(event) for event in given):
                    given.append(await self._given.get())
                    given += self._given.take_all()
        return " ".join(event.text for event in given if isinstance(event, TextGiven))

    def _on_tier_changed(self, event: TierChanged) -> None:
        if event.tier is Tier.HUMAN:
            # Words of an earlier human are no answer of this one.
            self._given.take_all()

    async def _speak(self, spoken: Spoken, question: ChatQuestion, made: _Made) -> None:
        try:
            async with aclosing(spoken.pieces()) as pieces:
                async for piece in pieces:
                    if question.given.streaming:
                        await self._socket.send({"type": "chunk", "audio_data": piece})
                    else:
                        made.audio.append(piece)
        except EngineError as failed:
            # The words are complete even without the voice.
            made.voice_error = str(failed)

    async def unless_halted(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work, unless the client stops it or leaves; the work has ended before this returns.

        Raises:
            ClientHaltedError: the client stopped it or left.
            Exception: any error of the work.
        """
        socket = self._socket
        working = asyncio.create_task(work, name="chat.work")
        halts = [
            asyncio.create_task(event.wait(), name="chat.halt") for event in (socket.stopped, socket.gone)
        ]
        try:
            await asyncio.wait({working, *halts}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for halt in halts:
                halt.cancel()
            if not working.done():
                # Cancelled once and awaited: it commits the delivered text, and ends its pipeline.
                working.cancel()
                await asyncio.wait({working})
        if working.cancelled():
            raise ClientHaltedError
        return working.result()

    def done(self, question: ChatQuestion, made: _Made, *, speaks: bool, was_stopped: bool) -> Message:
        """Return the last message of an answer."""
        message: Message = {
            "type": "done",
            "text": made.text.strip(),
            "generated_tokens": made.generated_tokens,
            "input_tokens": question.read_tokens,
            "session_id": self.session_id,
        }
        if self._engines.recordings.are_made:
            # The record of a typed conversation is its session.
            message["recording_session_id"] = self.session_id
        if speaks and not question.given.streaming:
            message["audio_data"] = b"".join(made.audio)
        if made.passages:
            message["passages"] = cited_as_json(made.passages)
        if made.voice_error:
            message["voice_error"] = made.voice_error
        if was_stopped:
            message["stopped"] = True
        if made.is_held:
            message["held"] = True
        return message

    async def respond(self, question: ChatQuestion, *, speaks: bool) -> Message:
        """Answer a question; return the last message, which follows the answer.

        Raises:
            AgentError: no answer was made, or it broke off.
        """
        made = _Made()
        was_stopped = False
        try:
            await self.unless_halted(self.answer(question, made, speaks=speaks))
        except ClientHaltedError:
            was_stopped = True
        finally:
            await question.answer.aclose()
        if was_stopped:
            # The delivered text is queued; a client that receives this message may read it back at once.
            with suppress(StoreUnavailableError):
                await self._conversation.in_time(self._conversation.flushed())
        return self.done(question, made, speaks=speaks, was_stopped=was_stopped)


def _is_by_human(event: CallEvent) -> bool:
    return isinstance(event, TextGiven) and event.by_human
