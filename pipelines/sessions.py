"""Sessions of one process: the deployment's store, and the summariser of older turns.

Opened once, after the engines, and closed before them: a summary may use the language model.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from loguru import logger

from parley.configs.deployment import Deployment
from parley.core.client_rules import ClientRules
from parley.core.errors import MediaError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.core.installation import installed_version
from parley.core.pictures import Picture, PictureFile
from parley.core.provenance import Provenance, canonical_json, digest_of
from parley.core.tiers import SEEN, Medium
from parley.core.tuning import tuned
from parley.models.tools import Tool
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.session_tiers import SessionTiers, session_tiers
from parley.pipelines.text.client_tool_uses import arguments_text, check_offer, check_uses, turn_of_uses
from parley.pipelines.text.shown_history import brought_turns, parted_from, pictures_of, take_share, texts_of
from parley.pipelines.text.typed_turns import (
    CLOSE_S,
    TRANSPORT,
    AnswerCommitted,
    AnswerPiece,
    CallsHandedOver,
    ClientTools,
    TurnCommitted,
    TurnHeld,
    TypedEvent,
    ask,
)
from parley.processors.dialogue.commit_gate import Answers
from parley.protocols.openai_chat import CompletionCall, CompletionTurn
from parley.serving.gateway.session_api import ClientDialogue, TurnEvent
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import (
    LEAST_BUDGET_TOKENS,
    Conversation,
    ConversationSettings,
    ConversationTuning,
)
from parley.session_store.conversations import Conversations
from parley.session_store.evidence import EvidenceSigner, EvidenceSource
from parley.session_store.history import ClientToolUse, DisplayedMessage
from parley.session_store.store import SessionStore
from parley.session_store.vault import open_vault

# Bound of one typed turn. A reader that is this far late makes the turn wait, and with it the model.
MAX_UNREAD_EVENTS = 256
BLIND = (
    "pictures: this deployment's language model sees none, send the text alone (docs/how-to/pictures.md says "
    "which models see)"
)


@asynccontextmanager
async def open_conversations(deployment: Deployment, answering: LlmRuntime) -> AsyncIterator[Conversations]:
    """Yield the sessions of this process.

    Raises:
        ConfigError: the store cannot be used: its address, its folder, its schema or its file.
    """
    store = await SessionStore.open(deployment.remembering.store)
    try:
        settings = _fitting(deployment.remembering.conversation, answering.dialogue_tokens)
        vision = deployment.thinking.vision
        settings = tuned(ConversationTuning, settings).model_copy(
            update={
                "resent_pictures": vision.resent if answering.sees else 0,
                "picture_bytes_per_minute": vision.minute_bytes,
            }
        )
        language = deployment.language()
        compactor = Compactor(
            settings.compaction,
            answering.summarizer(),
            budget_tokens=settings.budget_tokens,
            facts=language.facts if deployment.remembering.extract_facts else None,
            language=language,
        )
        vault = open_vault(store, deployment.privacy.vault)
        conversations = Conversations(
            store,
            settings,
            compactor=compactor,
            redactor=deployment.redactor(),
            vault=vault,
            evidence=_evidence_of(deployment),
            contexts=answering.contexts,
        )
        expiring = None if vault is None else asyncio.create_task(vault.run(), name="parley.vault")
        try:
            yield conversations
        finally:
            if expiring is not None:
                expiring.cancel()
                await asyncio.wait({expiring})
            await conversations.close()
    finally:
        await store.close()


def _evidence_of(deployment: Deployment) -> EvidenceSource | None:
    """Return what the sessions sign with; None where the deployment has no evidence.

    Raises:
        ConfigError: there is no key, or it is none.
    """
    if not deployment.privacy.evidence:
        return None
    effective = digest_of(canonical_json(deployment.model_dump(mode="json")))
    return EvidenceSource(EvidenceSigner.from_environment(), Provenance(installed_version(), effective))


def _fitting(settings: ConversationSettings, dialogue_tokens: int | None) -> ConversationSettings:
    """Return settings by which older turns are summarised before a model with a small context loses them."""
    if dialogue_tokens is None or settings.budget_tokens <= dialogue_tokens:
        return settings
    budget_tokens = max(LEAST_BUDGET_TOKENS, dialogue_tokens)
    logger.info(f"conversation.budget_tokens is {budget_tokens}, limited by the model's context")
    return settings.model_copy(update={"budget_tokens": budget_tokens})


class TypedTurns:
    """Typed turns of any session, one at a time in each: the sessions API's ``AnswerTyped``.

    Each turn is a task of this object. The reader of its events may go away at any moment, and a web server
    cancels a reader so that it cannot await anything more. The turn then still takes the time that it needs
    to commit its delivered text and to end its pipeline. It is cancelled once, also when several callers
    request it.

    Args:
        conversations: sessions of this process.
        answering: language model and tools.
        deployment: with the rules of the tiers; None: no human is fetched, and no other medium offered.
        answers: returns the own answer of the call that the turns belong to; None: it has none.
        tools: tools of that call, in addition to the deployment's.
    """

    def __init__(
        self,
        conversations: Conversations,
        answering: LlmRuntime,
        deployment: Deployment | None = None,
        *,
        answers: Answers | None = None,
        tools: Sequence[Tool] = (),
    ) -> None:
        self._deployment = deployment
        self._answers, self._tools = answers, tools
        self._conversations = conversations
        self._answering = answering
        self._turns: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def __call__(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None,
        identity: ClientIdentity = ANONYMOUS,
        pictures: Sequence[PictureFile] = (),
        dialogue: ClientDialogue | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Run one typed turn and yield its events (``AnswerTyped``).

        Raises:
            MediaError: a picture is invalid, or the model sees none; nothing was committed.
            StoreError: there is no such session, or another process holds it.
            ShareError: the client has used up its turns.
            EngineError: no answer was made.
            OpenAiHttpError: the tools of the client cannot be offered.
        """
        events: asyncio.Queue[TurnEvent] = asyncio.Queue(MAX_UNREAD_EVENTS)
        dialogue = dialogue or ClientDialogue(TRANSPORT)
        if not self._answering.sees and (pictures or any(each.pictures for each in dialogue.earlier or ())):
            raise MediaError(BLIND)
        check_offer(
            self._answering,
            self._answering.rules(identity),
            dialogue.offer,
            brings_uses=_brings_uses(dialogue),
        )
        turn = asyncio.create_task(
            self._run(session_id, text, key, identity, pictures, dialogue, events), name="typed"
        )
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        turn.add_done_callback(self._ending.discard)
        try:
            while (event := await _next_of(turn, events)) is not None:
                yield event
            # Its error is raised to the reader.
            await turn
        finally:
            self._end(turn)

    async def _run(
        self,
        session_id: str,
        text: str,
        key: str | None,
        identity: ClientIdentity,
        files: Sequence[PictureFile],
        dialogue: ClientDialogue,
        events: asyncio.Queue[TurnEvent],
    ) -> None:
        rules = self._answering.rules(identity)
        instruction = dialogue.instruction if rules.may_instruct else None
        if instruction:
            rules.add_text()
        if dialogue.offer.tools or _brings_uses(dialogue):
            # The description of a tool, and what it returned, are text of the client like any other.
            rules.add_text()
        if files or dialogue.earlier:
            # One thread decodes pictures for all clients: none of one that gets no answer.
            self._answering.usage.check(rules.counted)
        async with self._conversations.open(session_id) as conversation:
            tiers = self._tiers_of(conversation, dialogue.transport)
            pictures = [await self._read(conversation, file) for file in files]
            shown = [await self._displayed(conversation, each) for each in dialogue.earlier or ()]
            async with conversation.turn:
                supersedes: tuple[str, ...] = ()
                is_counted = False
                uses = _uses_of(dialogue.uses)
                # Before anything is committed: a refused turn has changed nothing.
                check_uses(conversation, (*uses, *(use for each in shown for use in each.uses)))
                resumed = turn_of_uses(conversation, uses, text)
                if dialogue.earlier is not None and resumed is None:
                    said = (text, *(use.text for use in uses))
                    supersedes = await self._follow(
                        conversation, shown, dialogue.transport, rules, said, pictures
                    )
                    is_counted = True
                answer = ask(
                    conversation,
                    self._answering,
                    text,
                    key=key,
                    store=self._conversations.store,
                    transport=dialogue.transport,
                    supersedes=supersedes,
                    instruction=instruction,
                    rules=rules,
                    tiers=tiers,
                    answers=self._answers,
                    own_tools=self._tools,
                    pictures=pictures,
                    tools=ClientTools(dialogue.offer, uses, resumed),
                    is_counted=is_counted,
                )
                async with aclosing(answer):
                    async for event in answer:
                        await events.put(_turn_event(event, conversation, text))

    def _tiers_of(self, conversation: Conversation, transport: str) -> SessionTiers | None:
        """Return the rules of the tiers for a turn over a transport of text; None without any.

        The page of a session leads to a call, with a camera or a screen where the model sees. A phone call as
        text and the clients of other protocols lead nowhere.
        """
        if self._deployment is None:
            return None
        media: set[Medium] = set()
        if transport == TRANSPORT and self._answers is None:
            sees = self._answering.sees and self._deployment.thinking.vision.camera
            media = {Medium.VOICE} | (SEEN if sees else set())
        return session_tiers(self._deployment, conversation, lambda: media)

    async def _follow(
        self,
        conversation: Conversation,
        shown: Sequence[DisplayedMessage],
        transport: str,
        rules: ClientRules,
        said: Sequence[str],
        pictures: Sequence[Picture],
    ) -> tuple[str, ...]:
        """Bring the session to the messages that its client shows; return the keys that its turn supersedes.

        Counts their texts and pictures together with those of the turn (``said``, ``pictures``), so that a
        refused request has no effect.

        Raises:
            ProtocolError: they cannot be followed.
            ShareError: they hold too much for a short time.
            OversizedError: they hold more than a session ever takes.
            StoreError: another process holds the session, or its store is unreachable.
        """
        parted = await parted_from(conversation, self._conversations.store, shown, transport=transport)
        take_share(conversation, (*texts_of(parted), *said), (*pictures_of(parted), *pictures))
        if not parted.new:
            return parted.supersedes
        await conversation.in_time(
            conversation.append(*brought_turns(conversation, parted, transport=transport, mark=rules.mark))
        )
        return ()

    async def _displayed(self, conversation: Conversation, turn: CompletionTurn) -> DisplayedMessage:
        pictures = [await self._read(conversation, file) for file in turn.pictures]
        return DisplayedMessage(turn.role, turn.text, tuple(pictures), _uses_of(turn.uses))

    async def _read(self, conversation: Conversation, file: PictureFile) -> Picture:
        """Return a picture as it is stored; that of the session where it is there already."""
        return await self._answering.pictures.read(
            file.data, media_type=file.media_type, find=conversation.picture
        )

    async def close(self) -> None:
        """End the turns that still run. Their delivered text is in the queues of their sessions then."""
        for turn in list(self._turns):
            self._end(turn)
        if self._turns:
            _, late = await asyncio.wait(self._turns, timeout=CLOSE_S)
            if late:
                logger.error(f"{len(late)} typed turns do not end; their text so far is kept")

    def _end(self, turn: asyncio.Task[None]) -> None:
        """Cancel a turn once; a further request does not interrupt a turn that is ending."""
        if turn not in self._ending and not turn.done():
            self._ending.add(turn)
            turn.cancel()


def _turn_event(event: TypedEvent, conversation: Conversation, text: str) -> TurnEvent:
    match event:
        case TurnCommitted(said):
            return TurnEvent("turn", {"session": conversation.session_id, "seq": said.seq, "text": text})
        case AnswerPiece(more):
            return TurnEvent("delta", {"text": more})
        case CallsHandedOver(said, calls, usage):
            shown = [
                {"id": call.call_id, "name": call.name, "arguments": arguments_text(call.arguments)}
                for call in calls
            ]
            used = {} if usage is None else {"usage": usage.amounts()}
            return TurnEvent("calls", {"seq": said.seq, "calls": shown, **used})
        case TurnHeld(said):
            return TurnEvent("held", {"seq": said.seq, "tier": conversation.tier.tier.value})
        case AnswerCommitted(reply, usage):
            used = {} if usage is None else {"usage": usage.amounts()}
            return TurnEvent("done", {"seq": reply.seq, **dict(reply.payload), **used})


def _brings_uses(dialogue: ClientDialogue) -> bool:
    """Return whether a client brings results of tools, in its last turn or an earlier one."""
    return bool(dialogue.uses) or any(each.uses for each in dialogue.earlier or ())


def _uses_of(calls: Sequence[CompletionCall]) -> tuple[ClientToolUse, ...]:
    return tuple(ClientToolUse(each.call_id, each.name, each.arguments, each.result) for each in calls)


async def _next_of(turn: asyncio.Task[None], events: asyncio.Queue[TurnEvent]) -> TurnEvent | None:
    """Return the next event of a turn; None when it is over, also after an error."""
    if events.empty() and not turn.done():
        getting = asyncio.ensure_future(events.get())
        try:
            await asyncio.wait({getting, turn}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
        finally:
            getting.cancel()
    return None if events.empty() else events.get_nowait()
