"""Gate between the caller's turn and the model: nothing is asked before the turn is durable.

Input: the context that the user aggregator pushes when a turn is over. The gate finds the new messages in it
and commits them to the session. Then it replaces the context's messages by the session's own view, and lets
the context pass to the model. The model therefore sees the content of the store and nothing else: words from
other transports, replies as far as they were heard, older turns in short.

Waiting happens in the processor's own queue of ordered frames: audio and interruptions pass by.
``filler_processor`` handles what the caller hears meanwhile. An interruption cancels the wait, not the
commit: the turn stays in the session. The next one is asked with it. When none comes (the sound was only a
cough) it is asked by itself once it is durable; ``QuestionReopened`` reports that the caller waits for that.
A turn that cannot be committed is not asked: the caller hears a refusal, or, when another process claimed the
session, the call ends (``Conversation.lost``). Words of a turn that was not over when the call ended are
committed and not asked: they are in the session when the caller comes back.

A turn that was recognised with doubt (``turn_taking.clarification``) is committed like any other and not
asked: the caller is asked back instead, as part of the conversation. When the caller says yes, the turn
before is answered. The model is asked with the view as it ended with that turn. A model that looks for its
answer in the last words would otherwise look for one to "yes".

A turn that the call itself answers (``answers``: a request for a person is put through) is committed and not
asked either. Its answer is said in place of the model's, and at once: it waits for no store, as the call does
not need the session for it. A question without new words (the reply was cut off by a noise) repeats the last
turn's.

Once the bot says its goodbye (``GoodbyeDue``), turns are committed and not asked: an answer would follow the
goodbye, and be cut by the end of the call.

While a human has the session, or the caller waits for one (``core.tiers``), no model is asked, neither for a
turn nor ahead of its end.

Where the model sees, a picture of the caller's camera is committed with the turn (``camera``): the one
nearest the last word that points ("what is this?"), and without such a word the newest. While the camera is
on, nothing is foreseen: the picture of a guess would be another than that of the turn.

A question for which the client has no turn left (``take_turn``) is committed and not asked either: the caller
hears why, and the call continues. Messages with the role of the system or of a developer stay in the context
only where they are the server's own (``own_instructions``). All others come from a client, whose instructions
have their place in the prompt of the service and are subject to its grants.

Guesses (speculative contexts) do not pass: Pipecat answers a confirmed one without asking again, so it would
be answered without a record. Parley guesses after this gate (``speculation``), and the gate supplies the
question (``foreseen``).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    TTSSpeakFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pydantic import Field

from parley.core.call_events import (
    BotTurnEnded,
    FinalWords,
    GoodbyeDue,
    PhraseChosen,
    PicturesTaken,
    QuestionDropped,
    QuestionReopened,
    QuestionSent,
    TextTyped,
    WordsDiscarded,
)
from parley.core.errors import AgentError
from parley.core.pictures import Picture
from parley.core.strict_model import StrictModel
from parley.core.tiers import Tier
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.fusion.perception import Perceived
from parley.processors.perception.caller_camera import NoCamera, TurnPictures
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation
from parley.turn_taking.clarification import AskBack, Clarification, Confirmed

# Takes the words of a turn.
Perceive = Callable[[str], Awaitable[Perceived]]

# Longest wait for the question of a turn that is over, which takes the interrupted turn with it: the caller's
# words, or the same question once more after a false interruption.
QUESTION_S = 1.0
# For the last words of a call on their way to the session, which keeps them while the store is away.
LAST_WORDS_S = 0.5
# Typed texts on their way here; more of them than a client types in a moment.
TYPED_TEXTS = 32


class Answers(Protocol):
    """Function that returns the call's own answer to a turn; None: the model is asked. Must not block.

    An empty answer is not said: the turn is committed, and a human answers it.

    Args:
        said: the words of the turn.
        is_again: True when it was answered so before, and is asked again.
    """

    def __call__(self, said: str, *, is_again: bool) -> str | None: ...


class CommitGateSettings(StrictModel):
    """Phrases that a caller hears in place of an answer."""

    refusal: str = Field(
        "Sorry, I cannot write that down right now. Please try again in a moment.",
        description="phrase when a turn is refused because too many writes wait for the session store",
    )
    over_limit: str = Field(
        "Sorry, there were too many questions in a short time. Please ask again in a minute.",
        description="phrase for a client that has used up its turns",
    )


class CommitGate(FrameProcessor):
    """Processor that holds each question until it is in the session.

    Args:
        conversation: the session.
        context: context of the aggregators; its messages are replaced by the session's view.
        events: events of the call.
        transport: transport of the call, for the record.
        settings: phrases; None for the defaults.
        perceive: returns the perceptions of a turn.
        asking: decides which turns are asked back, or None for never.
        answers: returns the call's own answer to a turn, or None for never.
        take_turn: counts a question of the client; false when it may not be asked. None: never limited.
        has_turn: returns whether ``take_turn`` would be true. None: always.
        own_instructions: texts that may stand in the context as messages of the system or a developer.
        camera: pictures of the caller for a turn.
    """

    def __init__(
        self,
        conversation: Conversation,
        context: LLMContext,
        events: CallEvents,
        *,
        transport: str,
        settings: CommitGateSettings | None = None,
        perceive: Perceive | None = None,
        asking: Clarification | None = None,
        answers: Answers | None = None,
        take_turn: Callable[[LLMContextFrame], Awaitable[bool]] | None = None,
        has_turn: Callable[[], bool] | None = None,
        own_instructions: Sequence[str] = (),
        camera: TurnPictures = NoCamera(),
    ) -> None:
        super().__init__()
        self._conversation = conversation
        self._context = context
        self._transport = transport
        self._settings = settings or CommitGateSettings()
        self._perceive = perceive
        self._events = events
        self._asking = asking
        self._answers = answers
        self._take_turn = take_turn
        self._has_turn = has_turn
        self._own_instructions = own_instructions
        self._camera = camera
        self._tasks: set[asyncio.Task[None]] = set()
        # A turn whose wait was interrupted before the model could be asked, and the task that asks it.
        self._unasked: asyncio.Task[None] | None = None
        # The words of the next question, and whether the call has answered them before.
        self._said = ""
        self._is_answered = False
        # Texts that were typed, and whether all words of the newest question are among them.
        self._typed: deque[str] = deque(maxlen=TYPED_TEXTS)
        self._is_typed = False
        self._later: asyncio.Task[None] | None = None
        # Set when a question has come since the last interruption of a wait.
        self._has_question = asyncio.Event()
        # Set while the caller is silent.
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._over = self._is_leaving = False
        self._pinned: list[LLMContextMessage] = []
        self._known = 0
        events.subscribe(GoodbyeDue, self._on_goodbye_due)
        events.subscribe(TextTyped, self._on_text_typed)
        if asking is not None:
            events.subscribe(FinalWords, self._on_final_words)
            events.subscribe(WordsDiscarded, self._on_words_discarded)
            events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        self.rebuild()

    def rebuild(self, following: Sequence[LLMContextMessage] = ()) -> None:
        """Put the session's view into the context, and after it ``following``, which came meanwhile."""
        messages = cast(list[LLMContextMessage], list(self._conversation.view(pictures=True).messages))
        view = [*self._pinned, *messages]
        self._context.set_messages([*view, *(each for each in following if not self._is_foreign(each))])
        self._known = len(view)

    def _on_goodbye_due(self, _event: GoodbyeDue) -> None:
        self._is_leaving = True

    def _on_text_typed(self, event: TextTyped) -> None:
        self._typed.append(event.text)

    def _on_final_words(self, event: FinalWords) -> None:
        if self._asking is not None:
            self._asking.on_words(event.text, event.confidences)

    def _on_words_discarded(self, _event: WordsDiscarded) -> None:
        if self._asking is not None:
            self._asking.forget()

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        if self._asking is not None:
            self._asking.on_bot_said(event.text)

    def foreseen(self, said: str, *, is_whole: bool = True) -> LLMContext | None:
        """Return the question that would pass if the turn ended now with these words; None when none would.

        Args:
            said: the words.
            is_whole: False while the turn goes on; then None is returned while the last turn is not fully
                written.
        """
        if not is_whole and not self._conversation.is_written:
            return None
        if self._over or self._is_leaving or self._conversation.loss is not None or self._unasked is not None:
            return None
        if self._camera.is_on:
            return None
        tier = self._conversation.tier
        if tier.is_held or tier.is_step or tier.tier is Tier.OFFERED:
            return None
        if self._has_turn is not None and not self._has_turn():
            return None
        if self._asking is not None and self._asking.is_open:
            # Its answer decides which turn is asked.
            return None
        context = self._context
        if self._texts_of(context.messages[self._known :]):
            # Words of another turn are on their way.
            return None
        view = self._conversation.foreseen(said, transport=self._transport, is_whole=is_whole, pictures=True)
        messages = cast(list[LLMContextMessage], list(view.messages))
        return LLMContext(
            messages=[*self._pinned, *messages], tools=context.tools, tool_choice=context.tool_choice
        )

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, UserStartedSpeakingFrame):
            self._quiet.clear()
        elif isinstance(frame, UserStoppedSpeakingFrame):
            self._quiet.set()
        elif isinstance(frame, (EndFrame, CancelFrame)):
            self._over = True
            self._keep_last_words()
        elif isinstance(frame, InterruptionFrame) and self._unasked is not None:
            self._ask_later(self._unasked)
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            said = None if frame.speculation else await self._admit()
            if said is None:
                return
            outcome = self._asking.on_turn(said) if self._asking is not None and said else None
            if isinstance(outcome, AskBack):
                await self._ask_back(outcome)
                return
            if isinstance(outcome, Confirmed):
                frame = LLMContextFrame(self._turn_before())
            await self._ask(frame)
            return
        await self.push_frame(frame, direction)

    async def _ask(self, frame: LLMContextFrame) -> None:
        """Let a question pass, or have the caller hear that it is one too many."""
        is_taken = None
        if self._take_turn is not None and not self._conversation.tier.is_held and not self._is_leaving:
            is_taken = await self._take_turn(frame)
        if self._conversation.tier.is_held or self._is_leaving:
            # A human took the session, or the goodbye began, while the turn was being committed or counted.
            self._events.publish(QuestionDropped(self._events.now_ms()))
            return
        if is_taken is not False:
            if self._events.has_subscribers(QuestionSent):
                self._events.publish(QuestionSent(self._events.now_ms(), _words_of(frame.context)))
            await self.push_frame(frame)
            return
        logger.info(f"{self}: a turn is not answered, because its client has no turns left")
        await self._say_instead(self._settings.over_limit)

    async def cleanup(self) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORDS_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await super().cleanup()

    async def _ask_back(self, doubt: AskBack) -> None:
        logger.info(f"{self}: a turn of confidence {doubt.confidence:.2f} is asked back")
        await self._say_instead(doubt.text)

    async def _is_answered_by_call(self) -> bool:
        """Return whether the call itself answers the last words; the answer is said then."""
        said = self._said.splitlines()
        if self._answers is None or not said:
            return False
        answer = self._answers(said[-1], is_again=self._is_answered)
        if answer is None:
            return False
        self._is_answered = True
        if self._asking is not None:
            self._asking.close()
        if answer:
            self._events.publish(PhraseChosen(self._events.now_ms(), answer))
            await self._say_instead(answer)
        else:
            self._events.publish(QuestionDropped(self._events.now_ms()))
        return True

    async def _say_instead(self, text: str) -> None:
        """Say a text in place of the model's answer, as part of the conversation."""
        self._events.publish(QuestionDropped(self._events.now_ms()))
        await self.push_frame(TTSSpeakFrame(text, append_to_context=True))

    def _turn_before(self) -> LLMContext:
        """Return the context without the last question of the bot and the caller's yes to it."""
        context = self._context
        messages = context.messages
        roles = [message.get("role") for message in messages[-3:] if isinstance(message, dict)]
        if roles == ["user", "assistant", "user"]:
            messages = messages[:-2]
        return LLMContext(messages=messages, tools=context.tools, tool_choice=context.tool_choice)

    async def _admit(self) -> str | None:
        """Commit new messages; return their words when the model may be asked, otherwise None."""
        if self._over:
            # Pipecat pushes the last words after the end of the call, too.
            self._keep_last_words()
            return None
        commit, self._unasked = self._unasked, None
        self._has_question.set()
        said = self._new_words()
        upto = self._known
        if said:
            self._said = f"{self._said}\n{said}" if commit is not None else said
            self._is_answered = False
        if self._is_leaving:
            if said:
                self._own(self._commit_unasked(said, is_typed=self._is_typed), "commit")
            self._events.publish(QuestionDropped(self._events.now_ms()))
            return None
        if await self._is_answered_by_call():
            if said:
                self._own(self._commit_unasked(said, is_typed=self._is_typed), "commit")
            return None
        if said:
            commit = self._own(self._commit(said, is_typed=self._is_typed), "commit")
        # Without new words a turn whose wait was interrupted is asked again, after another wait.
        if commit is not None and not commit.cancelled():
            try:
                await asyncio.wait({commit})
            except asyncio.CancelledError:
                self._unasked = commit
                raise
            if not await self._is_durable(commit):
                return None
        self.rebuild(self._context.messages[upto:])
        return said

    def _new_words(self) -> str:
        """Return the caller's words since the last question; they count as known from here on."""
        messages = self._context.messages
        new, self._known = messages[self._known :], len(messages)
        self._pinned.extend(
            message for message in new if _is_instruction(message) and not self._is_foreign(message)
        )
        texts = self._texts_of(new)
        self._is_typed = bool(texts) and all(text in self._typed for text in texts)
        for text in texts:
            if text in self._typed:
                self._typed.remove(text)
        return "\n".join(texts)

    def _is_foreign(self, message: LLMContextMessage) -> bool:
        """Return whether a message instructs the model and is not the server's own."""
        return (
            _is_instruction(message)
            and isinstance(message, dict)
            and message.get("content") not in self._own_instructions
        )

    @staticmethod
    def _texts_of(messages: Sequence[LLMContextMessage]) -> list[str]:
        """Return the caller's words in these messages, of each message that has some."""
        texts = (
            text_of(message.get("content"))
            for message in messages
            if isinstance(message, dict) and message.get("role") == "user"
        )
        return [text for text in texts if text]

    def _keep_last_words(self) -> None:
        said = self._new_words()
        if said:
            self._own(self._commit_unasked(said, is_typed=self._is_typed), "commit")

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # Not Pipecat's ``create_task``, which logs an error and returns None in its place.
        task = asyncio.create_task(work, name=f"{self}::{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _is_durable(self, commit: asyncio.Task[None]) -> bool:
        """Return whether a commit that is over succeeded; say the refusal when it did not."""
        error = commit.exception()
        if error is None:
            return True
        logger.opt(exception=None if isinstance(error, AgentError) else error).error(
            f"{self}: a turn could not be written to the session: {type(error).__name__}: {error}"
        )
        if self._conversation.loss is None:
            await self._say(self._settings.refusal)
        return False

    def _ask_later(self, commit: asyncio.Task[None]) -> None:
        """Ask a turn later, if the caller stays silent: it was not durable when an interruption came."""
        if self._later is not None:
            self._later.cancel()
        self._has_question.clear()
        self._later = self._own(self._ask_when_quiet(commit), "later")

    async def _ask_when_quiet(self, commit: asyncio.Task[None]) -> None:
        if await self._comes_with_question():
            return
        if self._unasked is commit and not commit.done():
            self._events.publish(QuestionReopened(self._events.now_ms()))
            await asyncio.wait({commit})
        if self._unasked is not commit:
            return
        self._unasked = None
        if commit.cancelled() or not await self._is_durable(commit):
            return
        self.rebuild(self._context.messages[self._known :])
        await self._ask(LLMContextFrame(self._context))

    async def _comes_with_question(self) -> bool:
        """Return whether a question takes the turn with it: False when none comes after the caller's turn."""
        while True:
            await self._quiet.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(QUESTION_S):
                    await self._has_question.wait()
                return True
            if self._quiet.is_set():
                return False

    async def _commit_unasked(self, said: str, *, is_typed: bool) -> None:
        """Commit words about which no model is asked."""
        try:
            await self._commit(said, is_typed=is_typed)
        except AgentError as error:
            logger.warning(
                f"{self}: words could not be written to the session: {type(error).__name__}: {error}"
            )

    async def _commit(self, said: str, *, is_typed: bool) -> None:
        # Files were counted when they came: a client was sent the refusal of one too many.
        files = self._camera.take_files()
        seen = await self._perceived(said)
        pictures = await self._pictures(files, seen.pointed_us)
        await self._conversation.user_turn(
            said,
            transport=self._transport,
            rendered=seen.text,
            tokens=seen.tokens,
            pictures=pictures,
            is_typed=is_typed,
        )

    async def _perceived(self, said: str) -> Perceived:
        return await self._perceive(said) if self._perceive is not None else Perceived("", ())

    async def _pictures(self, files: Sequence[Picture], pointed_us: int | None) -> list[Picture]:
        """Return what the caller shows with a turn.

        Args:
            files: that the client has sent with it.
            pointed_us: when its words pointed; None where they did not.
        """
        at_s = None
        if pointed_us is not None:
            ago_us = self._conversation.clock.now_us() - pointed_us
            at_s = asyncio.get_running_loop().time() - ago_us / 1_000_000
        seen = await self._camera.look(at_s)
        if seen and self._conversation.take_pictures(seen):
            logger.info(f"{self}: a turn has no picture, because its session has taken too many in a minute")
            seen = []
        if pictures := [*files, *seen]:
            self._events.publish(PicturesTaken(self._events.now_ms(), tuple(pictures)))
        return pictures

    async def _say(self, text: str) -> None:
        if text:
            await self.push_frame(TTSSpeakFrame(text, append_to_context=False))


def _is_instruction(message: LLMContextMessage) -> bool:
    """Return whether a message has the role of the system or of a developer."""
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _words_of(context: LLMContext) -> int:
    """Return the number of words that a model is shown; those of one provider's messages are not counted."""
    messages = (each for each in context.get_messages() if isinstance(each, dict))
    return sum(len(text_of(each.get("content")).split()) for each in messages)
