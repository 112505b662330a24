"""Tools with durable calls: a call is committed before it runs, its result after it.

    a call of the model -> TOOL_CALL is committed -> the tool runs -> TOOL_RESULT is committed -> its answer

Decides whether two calls are the same. The caller's newest turn, the name and the arguments identify a call,
not the provider's id. A model that is asked again after a crash or a failover gives another id to the same
request, and some servers give the same id to every request. A call that is repeated while it runs, or whose
result came after the caller's newest words, is not run again; the model gets that result with a note.

Between the two commits the session does not show whether the effect took place. ``recover``, at the opening
of a session, runs an idempotent call again with its key and records for any other one that its outcome is
unknown.

An interruption ends the wait of Pipecat (``cancel_on_interruption`` is left on) and not the effect. A tool
that has begun continues here, its result is committed, and the next turn's view shows it to the model. A call
that waits for its commit has not begun; it is withdrawn and never runs. Without ``cancel_on_interruption`` a
tool would be an asynchronous one to Pipecat, whose late results stand in the context as messages of a
developer. A view that is made from the session alone neither has nor needs these. ``tool_exchange`` makes the
request that follows a result.
"""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import FunctionCallResultProperties
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.llm_service import FunctionCallParams, LLMService

from parley.core.client_rules import ClientRules, ToolClients
from parley.core.errors import (
    CapacityError,
    ConfigError,
    EngineError,
    FencedError,
    StoreError,
    UnknownSessionError,
)
from parley.models.tools import (
    MAX_RESULT_BYTES,
    NOT_SHOWN,
    EffectUnknownError,
    HandedCall,
    HandedOverTool,
    Tool,
)
from parley.models.tools.arguments import argument_faults, schema_faults
from parley.processors.dialogue.engine_llm import EngineLlmService
from parley.processors.dialogue.tool_exchange import AnsweredCall, ToolExchange, newest_turn_seq
from parley.session_store.conversation import Conversation
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.memory import has_client_text, text_in

TakeRequest = Callable[[ClientRules], Awaitable[bool]]
# Payload of a TOOL_CALL whose result comes in a later request of the client.
HANDED_OVER = "handed_over"
# As JSON, in ASCII. More than a model can use, and far below the limit of the store for one event.
MAX_ARGUMENT_BYTES = 65_536
# A caller waits in silence for the commit of a call and again for that of its result.
COMMIT_WAIT_S = 15.0
# Time for running tools when the last user of the session leaves.
DRAIN_S = 10.0

NOT_RUN = "the call could not be written down, so it was not run"
WITHDRAWN = "the call was interrupted before it began and was not run"
UNKNOWN = "it is not known whether the call took effect; do not make it again unless the person asks for it"
NO_RECORD = "the call was made, and its result is not written down yet"
NOT_OFFERED = "this tool is not offered in this conversation any more; the call was not run"
NO_REQUEST = "the client has no model request left; the call was not run"
GONE = "the session is no longer held here"
NO_ANSWER = "the call was carried out; it has no answer"
HANDED = "the client runs it; its result comes later"
REPEATED = "this call was made before; it was not made twice, and this is what came of it"


class ToolOutcome(StrEnum):
    """Outcome of a TOOL_RESULT."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


# Key of a TOOL_CALL, with its digest.
_KEY = re.compile(r"tool\.\d+\.([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class _Call:
    """Content of a TOOL_CALL.

    Attributes:
        key: key of the event.
        effect_key: key that the tool gets; that of an earlier call whose outcome is to be found out.
        turn: seq of the caller's turn for which it was made; None in a call of an older release.
    """

    key: str
    call_id: str
    name: str
    arguments: Any
    idempotent: bool
    effect_key: str
    turn: int | None = None

    @property
    def digest(self) -> str:
        """Digest of the name and the arguments as the model gave them: the session may have them redacted."""
        found = _KEY.fullmatch(self.key)
        return found[1] if found else _digest(self.name, self.arguments)

    @property
    def is_whole(self) -> bool:
        """True when the arguments are those that the model gave."""
        return self.digest == _digest(self.name, self.arguments)

    @classmethod
    def of(cls, event: Event) -> "_Call | None":
        """Read a call from the timeline; None for an event that does not identify its call and tool."""
        if event.kind is not Kind.TOOL_CALL:
            return None
        payload = event.payload
        call_id, name = text_in(payload, "call_id"), text_in(payload, "name")
        if not call_id or not name:
            return None
        return cls(
            key=event.key,
            call_id=call_id,
            name=name,
            arguments=payload.get("arguments"),
            idempotent=payload.get("idempotent") is True,
            effect_key=text_in(payload, "effect_key") or f"{event.session_id}.{event.key}",
        )


@dataclass(slots=True, eq=False)
class _Run:
    """A call in progress.

    Attributes:
        began: done when the call is durable and its effect may take place.
        task: ends with the answer to the model.
        followers: number of waiting callers.
        recovery: True when it stood in the timeline without a result.
    """

    call: _Call
    recovery: bool
    began: asyncio.Future[None]
    task: "asyncio.Task[Mapping[str, Any]]" = field(init=False)
    followers: int = 0


@dataclass(slots=True)
class _Offer:
    """Offer of tools to one pipeline.

    Attributes:
        rules: rules of the client that the pipeline answers; they may change during the call.
        names: names of the tools that it knows.
        refused: turn and number of the model request whose calls were the first without a request left.
    """

    exchange: "ToolExchange"
    context: LLMContext
    rules: ClientRules
    names: frozenset[str] = frozenset()
    refused: tuple[int, int] | None = None


class DurableTools:
    """Tools of one session in this process. Each ``Conversation`` has one: see ``SharedTools``.

    Args:
        tools: tools of the process.
        conversation: open.
        clients: clients for which a tool of the process may be called, by its name; all for one that is not
            named.
        take_request: counts the model request after the result of a call for its client, before the tool
            runs, and returns whether there is one left; None: always.
        commit_wait_s: longest wait for a commit before the model is notified that there is none.
        drain_s: see ``drain``.

    Raises:
        ConfigError: two tools have one name, or a schema has rules that are not checked.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        conversation: Conversation,
        *,
        clients: Mapping[str, ToolClients] | None = None,
        take_request: TakeRequest | None = None,
        commit_wait_s: float = COMMIT_WAIT_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        check_tools(tools)
        self._tools = {tool.name: tool for tool in tools}
        self._first = dict(self._tools)
        self._clients = dict(clients or {})
        self._take_request = take_request
        # Rules of the clients whose tools were added, by the tool's name.
        self._rules: dict[str, ClientRules] = {}
        self._conversation = conversation
        self._commit_wait_s = commit_wait_s
        self._drain_s = drain_s
        self._runs: dict[str, _Run] = {}
        # Keys of calls whose TOOL_RESULT is queued directly after their TOOL_CALL.
        self._withdrawn: set[str] = set()
        # Offers to open pipelines; they go with their services.
        self._offers: WeakKeyDictionary[LLMService[Any], _Offer] = WeakKeyDictionary()

    def add(self, tools: Sequence[Tool], *, rules: ClientRules) -> None:
        """Add tools of one client; one of the same name is replaced.

        Args:
            tools: to be added.
            rules: see ``replace``.

        Raises:
            ConfigError: two have one name, or a schema has rules that are not checked.
        """
        self.replace((), tools, rules=rules)

    def replace(self, old: Sequence[Tool], new: Sequence[Tool], *, rules: ClientRules) -> None:
        """Replace tools of one client in its pipelines, from their next question on.

        Args:
            old: tools that were added here; one that another has replaced meanwhile stays.
            new: their replacements.
            rules: rules of the client. A pipeline that was offered tools with other rules is offered none of
                them.

        Raises:
            ConfigError: two have one name, or a schema has rules that are not checked.
        """
        check_tools(new)
        for tool in old:
            if self._tools.get(tool.name) is tool:
                del self._tools[tool.name], self._rules[tool.name]
                if tool.name in self._first:
                    self._tools[tool.name] = self._first[tool.name]
        self._tools |= {tool.name: tool for tool in new}
        self._rules |= {tool.name: rules for tool in new}
        for llm, offer in list(self._offers.items()):
            self._renew(llm, offer)

    def offer(
        self,
        llm: FrameProcessor,
        context: LLMContext,
        *,
        turn: Event | None = None,
        rules: ClientRules | None = None,
    ) -> bool:
        """Put the tools into the context of one pipeline and answer the model's calls there.

        Args:
            llm: the service that answers. An embedded engine has no tools and is offered none.
            context: context of that pipeline.
            turn: the USER_TURN that is answered; None for the newest one whenever the model is asked.
            rules: rules of the client, which decide which of the process's own tools are offered; None: an
                anonymous one.

        Returns:
            True when any were offered.
        """
        if not isinstance(llm, LLMService) or isinstance(llm, EngineLlmService):
            return False
        exchange = ToolExchange(self._conversation, context, turn)
        offer = self._offers[llm] = _Offer(exchange, context, rules or ClientRules())
        # At once and not with the first tool: other handlers of requests come after this one.
        llm.add_event_handler("on_before_process_frame", exchange.on_frame)
        self._renew(llm, offer)
        return bool(offer.names)

    def _renew(self, llm: LLMService[Any], offer: "_Offer") -> None:
        """Update a pipeline with the present tools."""
        self._note_client_text(offer.rules)
        tools = {name: tool for name, tool in self._tools.items() if self._is_permitted(tool, offer.rules)}
        offer.exchange.add_own(tools)
        if not tools and not offer.names:
            return
        context = offer.context
        for name in offer.names - tools.keys():
            llm.unregister_function(name)
        for tool in tools.values():
            if tool.name not in offer.names:
                answer = partial(self._answer, offer)
                llm.register_function(tool.name, answer, cancel_on_interruption=True)
        offered = [
            FunctionSchema(
                name=tool.name,
                description=tool.description,
                properties=dict(tool.parameters.get("properties", {})),
                required=list(tool.parameters.get("required", ())),
            )
            for tool in tools.values()
        ]
        given = context.tools if isinstance(context.tools, ToolsSchema) else ToolsSchema([])
        ours = offer.names | tools.keys()
        others = [schema for schema in given.standard_tools if schema.name not in ours]
        context.set_tools(ToolsSchema([*others, *offered], custom_tools=given.custom_tools))
        offer.names = frozenset(tools)

    def _is_permitted(self, tool: Tool, rules: ClientRules) -> bool:
        """Return whether a pipeline of this client is offered a tool. An added one is its client's alone."""
        if self._first.get(tool.name) is not tool:
            return self._rules.get(tool.name) is rules
        return rules.permits(tool.name, self._clients.get(tool.name, ToolClients.ALL))

    def _note_client_text(self, rules: ClientRules) -> None:
        """Note text of any client in the session, in this call or before it: the model reads it there."""
        if has_client_text(self._conversation.events):
            rules.add_text()

    async def recover(self) -> None:
        """Settle every call that a crash left without a result. Calls that run here are left alone.

        Returns when all are settled; idempotent ones run in parallel, each within its ``timeout_s``. Another
        ``recover`` at the same time joins this one. A session that is no longer ours stays as it is:
        ``Conversation.lost`` reports it.
        """
        for call in open_calls(self._conversation.events):
            if call.key not in self._runs and call.key not in self._withdrawn:
                self._start(call, recovery=True)
        recoveries = [run.task for run in self._runs.values() if run.recovery]
        if recoveries:
            await asyncio.wait(recoveries)
        for task in recoveries:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, StoreError | CapacityError):
                raise error

    async def drain(self) -> None:
        """Let begun tools end, for ``drain_s`` at most; calls that have not begun are withdrawn.

        A tool that is cut off stays without a result, for the next ``recover``.
        """
        for run in list(self._runs.values()):
            self._withdraw(run)
        tasks = {run.task for run in self._runs.values()}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._drain_s)
        for task in late:
            task.cancel()
        if late:
            logger.warning(f"session {self._conversation.shown_id}: {len(late)} tools did not end in time")
            await asyncio.wait(late)

    async def call(self, name: str, arguments: object, *, turn: Event | None = None) -> Mapping[str, Any]:
        """Make one call of the model and return the answer to it; cancellation withdraws a call not begun.

        Args:
            name: name of one of the tools.
            arguments: as the model gives them; arguments that do not fit the schema are not run.
            turn: the USER_TURN for which it is made; None for the newest one.

        Raises:
            FencedError, UnknownSessionError: the session is no longer ours.
            CapacityError, StoreError: the store does not take the call, so it was not run.
        """
        turn_seq = newest_turn_seq(self._conversation) if turn is None else turn.seq
        return (await self._call(name, arguments, turn_seq)).result

    async def _call(self, name: str, arguments: object, turn_seq: int) -> AnsweredCall:
        """Make one call; see ``call``."""
        tool = self._tools.get(name)
        if tool is None:
            return AnsweredCall(_failure(WITHDRAWN))
        faults = _argument_faults(tool, arguments)
        if faults or not isinstance(arguments, Mapping):
            return AnsweredCall(_failure(f"the arguments do not fit: {'; '.join(faults)}"))
        digest = _digest(tool.name, arguments)
        run = next((run for run in self._runs.values() if run.call.digest == digest), None)
        if run is not None:
            return AnsweredCall(_repeated(await self._follow(run, tool)))
        known = self._result_since(digest, turn_seq)
        if known is not None:
            return AnsweredCall(_repeated(known))
        call = self._new_call(tool, arguments, turn_seq)
        if isinstance(tool, HandedOverTool):
            return await self._hand_over(tool, call)
        if call.key in self._withdrawn:
            # Its commit and that of its result still wait.
            return AnsweredCall(_repeated(_failure(WITHDRAWN)))
        return AnsweredCall(await self._follow(self._start(call), tool), call.call_id)

    async def _hand_over(self, tool: HandedOverTool, call: _Call) -> AnsweredCall:
        """Commit a call, and hand it to the client. Raises as ``Conversation.append``."""
        # The client names the call by it in a later request, which may name no session.
        call = replace(call, call_id=f"call_{secrets.token_hex(12)}")
        try:
            async with asyncio.timeout(self._commit_wait_s):
                [event] = await self._conversation.append(self._call_draft(call))
        except TimeoutError:
            self._conversation.record(self._result_draft(call, ToolOutcome.FAILED, {"error": WITHDRAWN}))
            return AnsweredCall(_failure(NOT_RUN))
        # The same call was handed over before, when the model was asked the first time.
        stored_id = text_in(event.payload, "call_id")
        tool.hand_over(HandedCall(stored_id, call.name, call.arguments))
        return AnsweredCall({"note": HANDED}, stored_id, is_handed=True)

    # From a call to its run.

    async def _answer(self, offer: _Offer, params: FunctionCallParams) -> None:
        exchange, tool = offer.exchange, self._tools.get(params.function_name)
        if self._take_request is not None and not await self._take_request(offer.rules):
            await self._refuse(offer, params)
            return
        # Text of a client may have come since the tools were offered, also over another transport.
        self._note_client_text(offer.rules)
        try:
            if tool is not None and not self._is_permitted(tool, offer.rules):
                answer = AnsweredCall(_failure(NOT_OFFERED))
            else:
                answer = await self._call(params.function_name, params.arguments, exchange.turn_seq)
        except (FencedError, UnknownSessionError) as error:
            # This process does not answer in the session any more.
            logger.warning(f"tool {params.function_name}: its call could not be recorded: {error}")
            silent = FunctionCallResultProperties(run_llm=False)
            await params.result_callback(_failure(GONE), properties=silent)
            return
        except (CapacityError, StoreError):
            answer = AnsweredCall(_failure(NOT_RUN))
        exchange.record_answer(params, answer)
        if answer.is_handed:
            # The answer ends here: the model continues when the client has returned the result.
            silent = FunctionCallResultProperties(run_llm=False)
            await params.result_callback(answer.result, properties=silent)
            return
        await params.result_callback(answer.result)

    async def _refuse(self, offer: _Offer, params: FunctionCallParams) -> None:
        """Answer a call for whose result no model request is left; the tool is not run.

        The model answers once more, so that the caller hears an answer, and not again in this turn: a model
        that continues to call tools would never end.
        """
        logger.info(f"tool {params.function_name}: not run, because its client has no model request left")
        asked = offer.exchange.turn_seq, offer.exchange.requests
        if offer.refused is None or offer.refused[0] != offer.exchange.turn_seq:
            offer.refused = asked
        answer = AnsweredCall(_failure(NO_REQUEST))
        if offer.refused != asked:
            unread = FunctionCallResultProperties(run_llm=False)
            await params.result_callback(answer.result, properties=unread)
            return
        offer.exchange.record_answer(params, answer)
        await params.result_callback(answer.result)

    def _new_call(self, tool: Tool, arguments: Mapping[str, Any], turn_seq: int) -> _Call:
        digest = _digest(tool.name, arguments)
        key = f"tool.{turn_seq}.{digest}"
        effect_key = f"{self._conversation.session_id}.{key}"
        if tool.idempotent:
            # The caller asks again for an effect that may have happened already: the same key finds that out.
            effect_key = self._unknown_effect(digest) or effect_key
        return _Call(
            key=key,
            # The provider's own id may come twice in a session, which other providers refuse. At most 40
            # characters, OpenAI's limit.
            call_id=f"call_{turn_seq}_{digest[:16]}",
            name=tool.name,
            arguments=json.loads(_canonical(arguments)),
            idempotent=tool.idempotent,
            effect_key=effect_key,
            turn=turn_seq,
        )

    def _results(self, digest: str) -> list[tuple[_Call, Event]]:
        """Return earlier calls with a digest and their results, oldest first."""
        calls: dict[str, _Call] = {}
        found: list[tuple[_Call, Event]] = []
        for event in self._conversation.events:
            call = _Call.of(event)
            if call is not None and call.digest == digest:
                calls[call.call_id] = call
            elif event.kind is Kind.TOOL_RESULT and text_in(event.payload, "call_id") in calls:
                found.append((calls[text_in(event.payload, "call_id")], event))
        return found

    def _result_since(self, digest: str, turn_seq: int) -> Mapping[str, Any] | None:
        results = self._results(digest)
        if not results or results[-1][1].seq < turn_seq:
            return None
        event = results[-1][1]
        result = event.payload.get("result")
        return _told(_outcome(event), result if isinstance(result, Mapping) else {"result": result})

    def _unknown_effect(self, digest: str) -> str | None:
        """Return the key of the newest call when its outcome is still unknown."""
        results = self._results(digest)
        if not results:
            return None
        key = results[-1][0].effect_key
        outcomes = {_outcome(event) for call, event in results if call.effect_key == key}
        return key if ToolOutcome.UNKNOWN in outcomes and ToolOutcome.DONE not in outcomes else None

    async def _follow(self, run: _Run, tool: Tool) -> Mapping[str, Any]:
        """Wait for a run. A cancelled follower leaves it to the others; the last one withdraws it.

        Raises:
            As ``Conversation.append``.
        """
        run.followers += 1
        try:
            either: set[asyncio.Future[Any]] = {run.began, run.task}
            await asyncio.wait(either, timeout=self._commit_wait_s, return_when=asyncio.FIRST_COMPLETED)
            if self._withdraw(run):
                return _failure(NOT_RUN)
            await asyncio.wait({run.task}, timeout=tool.timeout_s + self._commit_wait_s)
        finally:
            run.followers -= 1
            if not run.followers:
                self._withdraw(run)
        if not run.task.done():
            return _told(ToolOutcome.UNKNOWN, {"error": NO_RECORD})
        if run.task.cancelled():
            if run.began.done():
                return _told(ToolOutcome.UNKNOWN, {"error": UNKNOWN})
            return _failure(WITHDRAWN)
        return run.task.result()

    # A run, owned here.

    def _start(self, call: _Call, *, recovery: bool = False) -> _Run:
        run = _Run(call, recovery, asyncio.get_running_loop().create_future())
        perform = self._settle(run) if recovery else self._perform(run)
        self._runs[call.key] = run
        run.task = asyncio.create_task(perform, name=f"tool.{call.name}.{call.key}")
        run.task.add_done_callback(partial(self._ended, run))
        return run

    def _ended(self, run: _Run, task: "asyncio.Task[Mapping[str, Any]]") -> None:
        del self._runs[run.call.key]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning(f"tool {run.call.name}: {type(error).__name__}: {error}")

    def _withdraw(self, run: _Run) -> bool:
        """Withdraw a call that has not begun: its TOOL_CALL awaits its commit, and the result follows."""
        if run.began.done() or run.task.done() or run.call.key in self._withdrawn:
            return False
        self._withdrawn.add(run.call.key)
        run.task.cancel()
        self._conversation.record(self._result_draft(run.call, ToolOutcome.FAILED, {"error": WITHDRAWN}))
        return True

    async def _perform(self, run: _Run) -> Mapping[str, Any]:
        newest_seq = max((event.seq for event in self._conversation.events), default=0)
        [event] = await self._conversation.append(self._call_draft(run.call))
        if event.seq <= newest_seq:
            # It stood there already, and it is not known whether it ran then.
            return await self._settle(run)
        tool = self._tools.get(run.call.name)
        run.began.set_result(None)
        if tool is None:
            # The tool was taken back while its call was being committed.
            return await self._record(run.call, ToolOutcome.FAILED, {"error": WITHDRAWN})
        return await self._take_effect(tool, run.call)

    async def _settle(self, run: _Run) -> Mapping[str, Any]:
        """Settle a call that was committed by a process that then died."""
        run.began.set_result(None)
        call = run.call
        tool = self._tools.get(call.name)
        if (
            tool is None
            or not (tool.idempotent and call.idempotent)
            # A tool must not run with redacted arguments.
            or not call.is_whole
            or not isinstance(call.arguments, Mapping)
            or _argument_faults(tool, call.arguments)
        ):
            return await self._record(call, ToolOutcome.UNKNOWN, {"error": UNKNOWN})
        return await self._take_effect(tool, call)

    async def _take_effect(self, tool: Tool, call: _Call) -> Mapping[str, Any]:
        started_s = asyncio.get_running_loop().time()
        outcome, result = await _run(tool, call)
        took_ms = round((asyncio.get_running_loop().time() - started_s) * 1_000)
        logger.info(f"tool {tool.name}: {outcome} after {took_ms} ms")
        return await self._record(call, outcome, result)

    async def _record(
        self, call: _Call, outcome: ToolOutcome, result: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        try:
            await self._conversation.append(self._result_draft(call, outcome, result))
        except (FencedError, UnknownSessionError):
            raise
        except CapacityError as error:
            logger.error(f"tool {call.name}: its result is lost: {error}")
            return _told(ToolOutcome.UNKNOWN, {"error": NO_RECORD})
        except StoreError:
            # The store has a limit of its own.
            result = {"note": NOT_SHOWN}
            await self._conversation.append(self._result_draft(call, outcome, result))
        return _told(outcome, result)

    def _call_draft(self, call: _Call) -> Draft:
        # The result of a client's own tool is its text too.
        owner = self._rules.get(call.name)
        return self._conversation.draft(
            Kind.TOOL_CALL,
            "bot",
            key=call.key,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            idempotent=call.idempotent,
            effect_key=call.effect_key,
            turn=call.turn,
            **({HANDED_OVER: True} if isinstance(self._tools.get(call.name), HandedOverTool) else {}),
            **(owner.mark if owner is not None else {}),
        )

    def _result_draft(self, call: _Call, outcome: ToolOutcome, result: Mapping[str, Any]) -> Draft:
        return self._conversation.draft(
            Kind.TOOL_RESULT,
            "tool",
            key=f"{call.key}.result",
            call_id=call.call_id,
            name=call.name,
            result=result,
            outcome=outcome.value,
        )


def open_calls(events: Iterable[Event]) -> list[_Call]:
    """Return calls without a result, once each. An event that does not identify its call has none."""
    known = list(events)
    settled = {text_in(event.payload, "call_id") for event in known if event.kind is Kind.TOOL_RESULT}
    found: dict[str, _Call] = {}
    for call in map(_Call.of, known):
        if call is not None and call.call_id not in settled:
            found.setdefault(call.call_id, call)
    return list(found.values())


def handed_calls(events: Iterable[Event], turn: Event) -> list[HandedCall]:
    """Return the calls of a turn that were handed to its client and have no result yet."""
    known = list(events)
    waiting = {call.call_id for call in open_calls(known)}
    return [
        HandedCall(text_in(event.payload, "call_id"), text_in(event.payload, "name"), arguments)
        for event in known
        if event.kind is Kind.TOOL_CALL
        and event.payload.get(HANDED_OVER) is True
        and event.payload.get("turn") == turn.seq
        and text_in(event.payload, "call_id") in waiting
        and isinstance(arguments := event.payload.get("arguments"), Mapping)
    ]


def check_tools(tools: Sequence[Tool]) -> None:
    """Check that tools can be offered together.

    Raises:
        ConfigError: two have one name, or a schema has rules that are not checked.
    """
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two tools are named {name!r}")
    for tool in tools:
        faults = schema_faults(tool.parameters)
        if faults:
            raise ConfigError(f"the tool {tool.name!r}: {'; '.join(faults)}")


async def _run(tool: Tool, call: _Call) -> tuple[ToolOutcome, Mapping[str, Any]]:
    """Run a tool; return an outcome and a result in any case."""
    deadline = asyncio.timeout(tool.timeout_s)
    try:
        async with deadline:
            result = await tool.run(call.arguments, key=call.effect_key)
    except EffectUnknownError as error:
        return ToolOutcome.UNKNOWN, {"error": f"{error}; {UNKNOWN}"}
    except EngineError as error:
        return ToolOutcome.FAILED, {"error": str(error)}
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return ToolOutcome.UNKNOWN, {"error": f"no answer within {tool.timeout_s:g} s; {UNKNOWN}"}
        # Foreign code: a bug in it must not leave the call without a result.
        logger.exception(f"tool {tool.name} failed")
        return ToolOutcome.UNKNOWN, {"error": f"it broke ({type(error).__name__}); {UNKNOWN}"}
    return ToolOutcome.DONE, _storable(result)


def _storable(result: object) -> Mapping[str, Any]:
    """Return a result in the form of the store and the model.

    An empty one becomes a note: Pipecat would not ask the model again for it.
    """
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return {"note": NOT_SHOWN}
    if len(text) > MAX_RESULT_BYTES:
        return {"note": NOT_SHOWN}
    stored = json.loads(text)
    if not isinstance(stored, dict):
        return {"result": stored}
    return stored or {"note": NO_ANSWER}


def _argument_faults(tool: Tool, arguments: object) -> list[str]:
    try:
        text = _canonical(arguments)
    except (TypeError, ValueError, RecursionError):
        return ["they are not JSON"]
    if len(text) > MAX_ARGUMENT_BYTES:
        return ["they are too long"]
    return argument_faults(tool.parameters, arguments)


def _digest(name: str, arguments: object) -> str:
    return hashlib.sha256(f"{name}\n{_canonical(arguments)}".encode()).hexdigest()[:32]


def _canonical(arguments: object) -> str:
    return json.dumps(arguments, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _told(outcome: ToolOutcome, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the form of a result that the model reads."""
    return result if outcome is ToolOutcome.DONE else {"outcome": outcome.value, **result}


def _outcome(result: Event) -> ToolOutcome:
    """Return the outcome of a TOOL_RESULT; one that cannot be read is unknown."""
    outcome = result.payload.get("outcome")
    return ToolOutcome(outcome) if outcome in list(ToolOutcome) else ToolOutcome.UNKNOWN


def _failure(reason: str) -> Mapping[str, Any]:
    return _told(ToolOutcome.FAILED, {"error": reason})


def _repeated(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"result": answer, "note": REPEATED}
