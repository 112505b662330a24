"""Language models of one process: the chosen model, its fallback, the guard between them, and its tools.

Loaded once; ``build`` makes the processors of one call. Owns the HTTP session that services and tools share.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from loguru import logger
from pipecat.frames.frames import Frame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.llm_service import LLMService
from pydantic import BaseModel

from parley.configs.deployment import Choice, Deployment
from parley.configs.engines import settings_model
from parley.core.client_rules import ClientRules, prompt_of
from parley.core.errors import ConfigError, EngineError
from parley.core.failover import CircuitBreaker
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.core.tuning import tuned
from parley.core.usage import PricedUsage, Stage, Usage
from parley.models.llm import LLM, LanguageModel, Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.models.llm.hosted.engine import HostedLlm, WorkerLlm
from parley.models.llm.hosted.session_cache import SessionCache
from parley.models.llm.kv import Replies
from parley.models.llm.kv.dialogue import Prefilled
from parley.models.llm.llamacpp.server import LlamaCppServer
from parley.models.retrieval.finder import PassageFinder
from parley.models.retrieval.library import DocumentLibrary
from parley.models.retrieval.minilm import weights_folder
from parley.models.tools import Tool, ToolSettings
from parley.models.tools.mcp_server import McpServers
from parley.pipelines.engines.choices import engine_settings, service_row
from parley.pipelines.engines.document_search import (
    DOCUMENTS,
    DocumentSearch,
    VectorPlan,
    check_folder,
    plan_search,
    plan_vectors,
)
from parley.pipelines.engines.picture_reader import PictureReader
from parley.pipelines.engines.tool_plan import create_tool, open_tools, plan_tools
from parley.processors.dialogue.agent_redaction import AgentRedaction
from parley.processors.dialogue.counted_answers import AnswerCount, CountedText
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.engine_llm import messages_of
from parley.processors.dialogue.llm_failover import LlmFailover
from parley.processors.dialogue.llm_timeouts import GuardTuning
from parley.processors.dialogue.passages import QuestionPassages
from parley.processors.dialogue.pictures import QuestionPictures
from parley.processors.dialogue.reply_prompts import ReplyPrompts
from parley.processors.dialogue.services import (
    LLM_SERVICES,
    Documents,
    LlamaCpp,
    LlmRow,
    PoolLlmRow,
    Transformers,
    WorkerLlmRow,
    forces_tools,
    sees_pictures,
)
from parley.processors.dialogue.shared_tools import SharedTools
from parley.processors.dialogue.tool_choice import QuestionToolChoice
from parley.processors.service_rows import ServiceRow, Shared
from parley.protocols.client_protocol import SessionUpdate
from parley.runtime.engine_thread import EngineThread
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.reference_voices.voices import VOICES_FOLDER, StoredVoices
from parley.serving.pool.streams import StreamWorkers, pooled_llm
from parley.session_store.compaction import ExtractiveSummarizer, LlmSummarizer, Summarizer
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event
from parley.session_store.prompt import approximate_tokens
from parley.telemetry.prices import PriceTable

if TYPE_CHECKING:
    from parley.models.llm.kv.replies import CausalReplies

# Puts into a question what a service alone may read, before the service gets it.
Reveal = Callable[[object, Frame], Awaitable[None]]


@dataclass(frozen=True)
class AnsweringPlan:
    """Checked choices of a deployment for answering; nothing is loaded.

    Attributes:
        row: row of the service that answers.
        documents: settings of the embedded model, when it answers or is the fallback.
        guarded: True when the embedded model is the fallback of another one.
        tools: tools of the model: rows and their settings.
        passages: documents whose passages precede each question; None: none do.
        vectors: search for the vectors nearest to a question, for ``documents``.
    """

    row: LlmRow
    documents: BaseModel | None
    guarded: bool
    tools: tuple[tuple[str, ToolSettings], ...] = ()
    passages: DocumentSearch | None = None
    vectors: VectorPlan | None = None

    @property
    def in_workers(self) -> bool:
        """True when workers of this deployment answer."""
        return isinstance(self.row, PoolLlmRow)

    @property
    def sees(self) -> bool:
        """True when the model accepts pictures."""
        return sees_pictures(self.row)


def plan_answering(deployment: Deployment) -> AnsweringPlan:
    """Resolve the choices of ``thinking``.

    Raises:
        ConfigError: an unknown name or field, a missing folder, key or package, missing weights.
    """
    thinking, knowledge = deployment.thinking, deployment.bot.knowledge
    fallback = thinking.fallback
    if fallback is not None and fallback.name not in LLM:
        raise ConfigError(f"thinking.fallback: unknown engine {fallback.name!r}", known=LLM.names())
    service, embedded, where = thinking.llm, fallback, "thinking.fallback"
    if thinking.llm.name == DOCUMENTS:
        # It has no fallback of its own; a fallback that names it too may hold settings of it.
        service, own = _service_and_engine(thinking.llm)
        fallback_settings = fallback.settings if fallback is not None else {}
        embedded, where = (
            Choice(name=DOCUMENTS, settings={**fallback_settings, **own.settings}),
            "thinking.llm",
        )
    row = cast(LlmRow, service_row(LLM_SERVICES, service, where="thinking.llm"))
    if isinstance(row, PoolLlmRow):
        _check_workers(deployment, row)
    tools = plan_tools(thinking)
    if tools and thinking.llm.name == DOCUMENTS:
        names = ", ".join(sorted(settings.name for _, settings in tools))
        logger.warning(f"thinking.tools: {DOCUMENTS!r} uses no tools; {names} will never be called")
    passages = plan_search(deployment) if thinking.llm.name != DOCUMENTS else None
    if embedded is None:
        return AnsweringPlan(row, None, guarded=False, tools=tools, passages=passages)
    check_folder(knowledge)
    given = {"folder": knowledge, "name": deployment.bot.name, "models_dir": deployment.models_dir}
    settings = engine_settings(LLM, embedded, given, where=where)
    if isinstance(settings, DocumentLlmSettings):
        weights_folder(settings.embedder, settings.models_dir)
    guarded = thinking.llm.name != DOCUMENTS
    vectors = plan_vectors(deployment)
    return AnsweringPlan(row, settings, guarded=guarded, tools=tools, passages=passages, vectors=vectors)


def _check_workers(deployment: Deployment, row: PoolLlmRow) -> None:
    """Check that the workers of a pool exist.

    Raises:
        ConfigError: there are no workers, or none of a given name.
    """
    known = tuple(spec.name for spec in deployment.workers.workers)
    if not known:
        raise ConfigError(
            "thinking.llm: 'pool' stands for the workers of this deployment, but workers.workers names none"
        )
    for name in row.settings.workers:
        if name not in known:
            raise ConfigError(f"thinking.llm: there is no worker {name!r}", known=known)


def _service_and_engine(choice: Choice) -> tuple[Choice, Choice]:
    """Split the settings of ``documents`` into those of its service and those of the engine that it wraps.

    Raises:
        ConfigError: a field that neither has; the message lists those of both.
    """
    row_type = cast(type[ServiceRow[Any]], LLM_SERVICES.factory(choice.name))
    of_service = row_type.settings_type.model_fields
    of_engine = settings_model(LLM.factory(choice.name)).model_fields
    for name in choice.settings:
        if name not in of_service and name not in of_engine:
            known = tuple(sorted({*of_service, *of_engine}))
            raise ConfigError(f"thinking.llm ({choice.name}): unknown field {name!r}", known=known)
    service = {name: value for name, value in choice.settings.items() if name in of_service}
    engine = {name: value for name, value in choice.settings.items() if name not in of_service}
    return Choice(name=choice.name, settings=service), Choice(name=choice.name, settings=engine)


class LlmRuntime:
    """Loaded language models and tools of a process. Created by ``load``.

    Attributes:
        documents: the embedded model, or None.
        library: documents that answers come from, which an operator may change; None where there are none.
        usage: model requests of each client, on every surface.
        pictures: reads pictures that clients send, where the model sees.
    """

    def __init__(
        self,
        deployment: Deployment,
        plan: AnsweringPlan,
        documents: LanguageModel | None,
        causal: "Causal | HostedLlm | None" = None,
        llamacpp: LlamaCppServer | None = None,
        http: aiohttp.ClientSession | None = None,
        finder: PassageFinder | None = None,
        library: DocumentLibrary | None = None,
        tools: Sequence[Tool] | None = None,
        servers: McpServers | None = None,
    ) -> None:
        self.documents = documents
        self._llamacpp = llamacpp
        self.usage = UsageLimits(deployment.server)
        self.prices = PriceTable(deployment.prices)
        self.pictures = PictureReader(deployment.thinking.vision)
        self._anonymous = deployment.server.clients.anonymous.grants()
        self._causal = causal
        self._finder = finder
        self.library = library
        self._plan = plan
        self._name = deployment.thinking.llm.name
        self._language = deployment.language()
        self._redactor = deployment.redactor()
        self._system_prompt = deployment.bot.system_prompt
        self._guard = tuned(GuardTuning, deployment.thinking.guard)
        self._circuit = CircuitBreaker(
            max_failures=self._guard.max_failures, cool_down_ms=self._guard.cool_down_ms
        )
        self.http = _http_session() if http is None else http
        self._reference_voices = StoredVoices(deployment.operations.data_dir / VOICES_FOLDER)
        self._servers = servers
        if tools is None:
            tools = [create_tool(name, settings, self.http) for name, settings in plan.tools]
        self._tools = SharedTools(
            tools,
            {settings.name: settings.clients for _, settings in plan.tools},
            take_request=lambda rules: self.usage.try_take_further(rules.counted),
        )

    @classmethod
    async def load(
        cls, deployment: Deployment, plan: AnsweringPlan, workers: StreamWorkers | None = None
    ) -> "LlmRuntime":
        """Load the models that the plan needs; the documents are read in a thread.

        Args:
            deployment: the deployment.
            plan: plan of the deployment.
            workers: workers of the deployment, where ``plan.in_workers``.

        Raises:
            ConfigError: the folder holds no passage, a package is missing, or a tool cannot be created.
            EngineError: a model does not load.
        """
        documents = None
        if plan.documents is not None:
            documents = await asyncio.to_thread(_load_documents, deployment, plan)
        finder, library = None, documents.library if isinstance(documents, DocumentLlm) else None
        if plan.passages is not None:
            loading = partial(plan.passages.load, documents, language=deployment.language())
            finder, library = await asyncio.to_thread(loading)
        causal: Causal | HostedLlm | None = None
        llamacpp: LlamaCppServer | None = None
        async with AsyncExitStack() as opened:
            if isinstance(plan.row, Transformers):
                causal = await asyncio.to_thread(Causal, plan.row)
            elif isinstance(plan.row, WorkerLlmRow | PoolLlmRow):
                causal = await _hosted(plan.row, workers, guarded=plan.guarded)
            if causal is not None:
                opened.callback(causal.close)
            if isinstance(plan.row, LlamaCpp):
                llamacpp = await _start_llamacpp(plan)
                opened.push_async_callback(llamacpp.close)
            http = _http_session()
            opened.push_async_callback(http.close)
            servers = McpServers()
            opened.push_async_callback(servers.close)
            # Tools are code of the deployment's own.
            tools = await open_tools(plan.tools, http, servers)
            loaded = cls(deployment, plan, documents, causal, llamacpp, http, finder, library, tools, servers)
            opened.pop_all()
        return loaded

    @property
    def shared(self) -> Shared:
        """Resources of this process that service rows may use."""
        open_replies = self._causal.open_replies if self._causal is not None else None
        return Shared(
            language_model=self.documents,
            open_replies=open_replies,
            llamacpp=self._llamacpp,
            http=self.http,
            reference_voices=self._reference_voices,
        )

    @property
    def contexts(self) -> HostedLlm | None:
        """Workers that keep contexts of sessions between their streams; None: there are none."""
        return self._causal if isinstance(self._causal, HostedLlm) else None

    @property
    def calls_tools(self) -> bool:
        """True when the model may call tools.

        Models that run in this process or in a worker support none; a GGUF file supports them when its chat
        template does.
        """
        if self._llamacpp is not None:
            return self._llamacpp.uses_tools
        return not isinstance(self._plan.row, Documents | Transformers | WorkerLlmRow | PoolLlmRow)

    @property
    def forces_tools(self) -> bool:
        """True when a request may make the model call a tool."""
        return forces_tools(self._plan.row) and self.calls_tools

    @property
    def sees(self) -> bool:
        """True when the model accepts pictures."""
        return self._plan.sees

    @property
    def circuit(self) -> CircuitBreaker:
        """Circuit breaker of the model, which all calls share."""
        return self._circuit

    @property
    def dialogue_tokens(self) -> int | None:
        """Tokens of a conversation that the model can take in addition to its prompt and an answer.

        None where this process sets no bound: a provider's model takes more than a session's budget.
        """
        row = self._plan.row
        if self._llamacpp is None or not isinstance(row, LlamaCpp):
            return None
        dialogue_tokens = self._llamacpp.most_tokens(row.settings.max_tokens)
        return dialogue_tokens - approximate_tokens(self.instruction())

    @property
    def searches(self) -> bool:
        """True when documents are searched before each question to the model."""
        return self._finder is not None

    @property
    def speaks_first(self) -> bool:
        """True when the model can speak before the caller has: the documents only answer questions."""
        return not isinstance(self._plan.row, Documents)

    @property
    def takes_instructions(self) -> bool:
        """True when the prompt shapes the answers: those from documents have none."""
        return not isinstance(self._plan.row, Documents)

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of the deployment's own tools."""
        return self._tools.names

    @asynccontextmanager
    async def tools(
        self, conversation: Conversation, more: Sequence[Tool] = (), *, rules: ClientRules | None = None
    ) -> AsyncIterator[DurableTools]:
        """Hold the tools of a session, inside of its ``Conversations.open``; see ``SharedTools.of``.

        Args:
            conversation: the session.
            more: tools of one client of it, offered to its own pipelines.
            rules: rules of that client; None for an anonymous one.
        """
        async with self._tools.of(conversation, more, rules=rules) as tools:
            yield tools

    @asynccontextmanager
    async def memory(self, conversation: Conversation | None = None) -> AsyncIterator["Memory | None"]:
        """Yield the model's memory of one conversation between its turns; None when it keeps none.

        Args:
            conversation: session whose context in a worker is continued; None: there is none.
        """
        if self._causal is None:
            yield None
            return
        replies = self._causal.open_replies(conversation)
        try:
            yield Memory(replies)
        finally:
            replies.close()

    async def build(
        self,
        *,
        tools: DurableTools | None = None,
        context: LLMContext | None = None,
        turn: Event | None = None,
        instruction: str | None = None,
        memory: "Memory | None" = None,
        rules: ClientRules | None = None,
        conversation: Conversation | None = None,
        events: CallEvents | None = None,
        reveal: Reveal | None = None,
        requested: Callable[[], SessionUpdate] | None = None,
        prompt: str | None = None,
    ) -> list[FrameProcessor]:
        """Return the processors of one call, in pipeline order: the service, or the guard around it.

        Args:
            tools: tools of the session, when the model may use them.
            context: context of the pipeline; needed with ``tools``.
            turn: the only turn that is answered; None for the newest one at any time.
            instruction: text that the client adds to the deployment's prompt, where it may; None for none.
            memory: memory of the conversation; None where the model is asked only this once.
            rules: rules of the client that is answered; None for an anonymous one.
            conversation: session whose pictures the model sees; None for a dialogue without pictures.
            events: of the call, where the fallback is reported; None: there is no call.
            reveal: puts words of a private pause into each question; None: there are none.
            requested: returns the client's settings, for its choice of tools; None: there is no such client.
            prompt: of the call, whose caller has chosen; None: the deployment's with ``instruction``.
        """
        shared = self.shared
        if memory is not None:
            shared = replace(shared, open_replies=lambda: memory)
        elif self._causal is not None:
            shared = replace(shared, open_replies=partial(self._causal.open_replies, conversation))
        own = self.instruction(instruction) if prompt is None else prompt
        build = partial(self._plan.row.build, shared, system_instruction=own)
        service = await asyncio.to_thread(build)
        if events is not None and isinstance(service, LLMService):
            ReplyPrompts(own).follow(service)
        if tools is not None and context is not None and self.calls_tools:
            tools.offer(service, context, turn=turn, rules=rules)
            if requested is not None:
                # After the tools, which make the question that follows a result.
                service.add_event_handler("on_before_process_frame", QuestionToolChoice(requested).on_frame)
        if self._finder is not None:
            # After the tools, which make the request that follows a result.
            finder = self._finder
            passages = QuestionPassages(finder.find, generation=lambda: finder.generation)
            service.add_event_handler("on_before_process_frame", passages.on_frame)
        if self.sees and conversation is not None:
            # The last: it puts the pictures into the question as all others have made it.
            service.add_event_handler(
                "on_before_process_frame", QuestionPictures(conversation.picture).on_frame
            )
        if reveal is not None:
            service.add_event_handler("on_before_process_frame", reveal)
        redaction = [] if self._redactor is None else [AgentRedaction(self._redactor)]
        if not self._plan.guarded or self.documents is None:
            return [service, *redaction]
        guard = LlmFailover(
            service,
            self.documents,
            self._guard,
            circuit=self._circuit,
            events=events,
            engine=self._name,
            successor=DOCUMENTS,
        )
        return [*guard.processors, *redaction]

    def rules(self, identity: ClientIdentity = ANONYMOUS) -> ClientRules:
        """Return the rules of a new call; a client without a credential has the grants of anonymous ones."""
        if not identity.owner and not identity.is_operator:
            identity = replace(identity, grants=self._anonymous)
        return ClientRules(identity)

    def instruction(self, added: str | None = None) -> str:
        """Return the prompt: the deployment's, followed by the client's addition."""
        return prompt_of(self._system_prompt, added)

    def made_by(
        self,
        conversation: Conversation,
        added: str | None = None,
        *,
        model: str = "",
        writers: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the field of a written answer that names its maker; none in a session without evidence.

        Args:
            conversation: the session.
            added: as for ``instruction``.
            model: as the service reported it.
            writers: as for ``Provenance.of_reply``.
        """
        if (maker := conversation.made_by) is None:
            return {}
        engines, prompt = {Stage.LLM.value: self._name}, self.instruction(added)
        models = {Stage.LLM.value: model} if model else {}
        return {"made_by": maker.of_reply(engines, prompt, models=models, writers=writers)}

    def priced(self, model: str, usage: Usage) -> PricedUsage:
        """Return the use of the deployment's model outside of a call with its cost."""
        return self.prices.priced(Stage.LLM, self._name, model, usage)

    def summarizer(self) -> Summarizer:
        """Return the summariser of older turns: the deployment's model, or an extract for the documents."""
        if self._name == DOCUMENTS:
            return ExtractiveSummarizer(language=self._language)
        return LlmSummarizer(self._ask)

    async def judging(self) -> "LLMService[Any] | None":
        """Return the model outside of any conversation, to judge recognised words; None for the documents.

        The documents cannot judge. The caller of this method cleans the service up.
        """
        if not self.speaks_first:
            return None
        service = await asyncio.to_thread(self._plan.row.build, self.shared)
        assert isinstance(service, LLMService)
        return service

    async def _ask(self, instruction: str, text: str) -> str:
        """Return the model's summary of a text. Raises EngineError."""
        return await self.infer(instruction, [{"role": "user", "content": text}])

    async def infer(
        self, instruction: str, messages: Sequence[Mapping[str, Any]], *, most_tokens: int | None = None
    ) -> str:
        """Return the model's whole answer, outside of any conversation. See ``infer_counted``."""
        return (await self.infer_counted(instruction, messages, most_tokens=most_tokens)).text

    async def infer_counted(
        self, instruction: str, messages: Sequence[Mapping[str, Any]], *, most_tokens: int | None = None
    ) -> CountedText:
        """Return the model's whole answer and its tokens, where the model reports them.

        Args:
            instruction: the prompt.
            messages: what is answered, the oldest first.
            most_tokens: longest answer; None: the deployment's.

        Raises:
            EngineError: the model failed, or its answer was empty.
        """
        build = partial(self._plan.row.build, self.shared, system_instruction=instruction)
        service: LLMService | None = None
        try:
            built = await asyncio.to_thread(build)
            assert isinstance(built, LLMService)
            service = built
            answer = await service.run_inference(
                LLMContext(messages=cast(list[LLMContextMessage], list(messages))),
                max_tokens=most_tokens,
                system_instruction=instruction,
            )
        except Exception as error:
            # Any error of a vendor's SDK; a summary is made without the model then.
            raise EngineError(
                f"the language model gave no answer: {type(error).__name__}", engine=self._name
            ) from error
        finally:
            if service is not None:
                await service.cleanup()
        if not answer:
            raise EngineError("the language model's answer is empty", engine=self._name)
        counted: AnswerCount | None = getattr(service, "counted", None)
        return CountedText(answer) if counted is None else CountedText(answer, counted.model, counted.usage)

    async def close(self) -> None:
        """End connections, and release the weights."""
        if self._servers is not None:
            await self._servers.close()
        await self.http.close()
        self.pictures.close()
        if self._causal is not None:
            self._causal.close()
        if self._llamacpp is not None:
            await self._llamacpp.close()


class Memory:
    """Memory that a causal model keeps of one conversation, made by ``LlmRuntime.memory``.

    A ``LanguageModel`` that outlives the service of a turn: it holds nothing that such a service would close.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Stream the reply to a conversation (``LanguageModel``)."""
        return self._replies.reply(messages)

    async def prefill(self, context: LLMContext, instruction: str) -> Prefilled:
        """Prefill the prompt that a service will send with this context. Raises as ``Replies.prefill``."""
        return await self._replies.prefill(messages_of(context, instruction))

    def generated_tokens(self, text: str) -> int | None:
        """Return the tokens of the last answer when it is this text, else None."""
        answered = self._replies.answered
        if answered is None or answered.text.strip() != text.strip():
            return None
        return len(answered.char_ends)


class Causal:
    """Weights of a causal model, and the thread that it answers in. Loading blocks.

    Args:
        row: row of the deployment.
    """

    def __init__(self, row: Transformers) -> None:
        # Imports torch.
        from parley.models.llm.kv.causal import CausalLm

        self._model = CausalLm(row.lm_settings())
        self._thread = EngineThread("causal")

    def open_replies(self, session: SessionCache | None = None) -> "CausalReplies":
        """Return the language model of one conversation, whose context ends with it."""
        from parley.models.llm.kv.replies import CausalReplies

        return CausalReplies(self._model, uuid.uuid4().hex, thread=self._thread)

    def close(self) -> None:
        """Forget every conversation, after the answer that is being made. Returns at once."""
        self._thread.submit(self._model.forget_all)
        self._thread.shutdown(wait=False)


def _load_documents(deployment: Deployment, plan: AnsweringPlan) -> LanguageModel:
    """Return the embedded model. Blocks; raises as its constructor and ``VectorPlan.open`` do."""
    vector_search = plan.vectors.open() if plan.vectors is not None else None
    return LLM.create(DOCUMENTS, plan.documents, language=deployment.language(), vector_search=vector_search)


async def _hosted(
    row: WorkerLlmRow | PoolLlmRow, workers: StreamWorkers | None, *, guarded: bool
) -> HostedLlm:
    """Return the language model of a worker.

    When the worker is unreachable and a fallback answers meanwhile, each conversation tries it again.

    Raises:
        ConfigError: it has an engine of another kind, or the deployment's workers are not started.
        EngineError: it is unreachable, and there is no fallback.
    """
    hosted: HostedLlm
    if isinstance(row, WorkerLlmRow):
        hosted = one = WorkerLlm(row.settings)
        wait = one.wait_until_loaded
    elif workers is not None:
        settings = row.settings
        hosted = pooled_llm(workers, settings)
        wait = partial(workers.wait_until_loaded, "llm", settings.workers, settings.load_timeout_s)
    else:
        raise ConfigError("thinking.llm: this process does not start the deployment's workers")
    try:
        await asyncio.to_thread(wait)
    except EngineError as error:
        if not guarded:
            raise
        logger.warning(f"no worker of thinking.llm is available, the fallback answers: {error}")
    return hosted


def _http_session() -> aiohttp.ClientSession:
    # No cookies: a cookie that a server sets in one conversation would be sent to it in the next. No bound of
    # connections: the number of calls bounds them, and a sentence that waited for one would count as late.
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar())


async def _start_llamacpp(plan: AnsweringPlan) -> LlamaCppServer:
    """Start the server of a GGUF file.

    Raises:
        EngineError: the file does not load.
    """
    row = cast(LlamaCpp, plan.row)
    server = LlamaCppServer(row.settings.served)
    await server.start()
    if plan.tools and not server.uses_tools:
        names = ", ".join(sorted(settings.name for _, settings in plan.tools))
        logger.warning(
            f"thinking.tools: the chat template of {row.settings.model.name} does not support tools; "
            f"{names} will never be called"
        )
    return server
