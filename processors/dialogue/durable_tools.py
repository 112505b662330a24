"""Tools whose calls are durable: committed before they run, their results behind them.

    a call of the model -> TOOL_CALL is committed -> the tool runs -> TOOL_RESULT is committed -> its answer

Decides what is the same call. The person's newest turn, the name and the arguments make it one, not the id
that the provider gives it: a model that is asked again after a crash or a failover gives another id to the
same wish, and some servers give the same id to every wish. A call that is repeated while it runs, or whose
result came after the person's newest words, is not run again; the model gets that result and is told so.

Between the two commits nobody can know from the session whether the effect took place. ``recover``, at the
opening of a session, runs an idempotent call again with its key and records of any other one that its outcome
is unknown.

An interruption ends the wait of Pipecat (``cancel_on_interruption`` is left on) and not the effect: what has
begun goes on here, its result is committed, and the next turn's view shows it to the model. What waits for
its commit has not begun; it is withdrawn and never runs. Without ``cancel_on_interruption`` a tool would be
an asynchronous one to Pipecat: results that come late stand in the context as messages of a developer, which
a view that is made from the session alone neither has nor needs.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import FunctionCallResultProperties
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.llm_service import FunctionCallParams, LLMService

from core.errors import (
    CapacityError,
    ConfigError,
    EngineError,
    FencedError,
    StoreError,
    UnknownSessionError,
)
from models.tools import EffectUnknownError, Tool
from models.tools.arguments import argument_faults, schema_faults
from processors.dialogue.engine_llm import EngineLlmService
from session_store.conversation import Conversation
from session_store.events import Draft, Event, Kind

# As JSON, in ASCII. More than a model can use, and far under what the store takes as one event.
MAX_ARGUMENT_BYTES = 65_536
MAX_RESULT_BYTES = 262_144
# A caller waits in silence for the commit of a call and again for that of its result.
COMMIT_WAIT_S = 15.0
# For what runs when the last user of the session leaves.
DRAIN_S = 10.0

NOT_RUN = "the call could not be written down, so it was not run"
WITHDRAWN = "the call was interrupted before it began and was not run"
UNKNOWN = "nobody knows whether the call took effect; do not make it again unless the person asks for it"
NO_RECORD = "the call was made, and its result is not written down yet"
GONE = "the session is no longer held here"
NOT_SHOWN = "the call was carried out; its answer is too long, or is not JSON, and is not shown"
NO_ANSWER = "the call was carried out; it has no answer"
REPEATED = "this call was made before; it was not made twice, and this is what came of it"


class Outcome(StrEnum):
    """Of a TOOL_RESULT."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Call:
    """What a TOOL_CALL says.

    Attributes:
        key: of the event.
        effect_key: what the tool is given; that of an earlier call whose outcome is to be found out.
    """

    key: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    idempotent: bool
    effect_key: str

    @property
    def wish(self) -> tuple[str, str]:
        """What makes it the same as another one."""
        return self.name, _canonical(self.arguments)

    @classmethod
    def of(cls, event: Event) -> "_Call":
        """From the timeline."""
        payload = event.payload
        return cls(
            key=event.key,
            call_id=str(payload["call_id"]),
            name=str(payload["name"]),
            arguments=payload["arguments"],
            idempotent=bool(payload["idempotent"]),
            effect_key=str(payload.get("effect_key", f"{event.session_id}.{event.key}")),
        )


@dataclass(slots=True, eq=False)
class _Run:
    """A call on its way.

    Attributes:
        began: done when the call is durable and its effect may take place.
        task: ends with what the model is told.
        followers: who waits for it.
        recovery: it stood in the timeline without a result.
    """

    call: _Call
    recovery: bool
    began: asyncio.Future[None]
    task: "asyncio.Task[Mapping[str, Any]]" = field(init=False)
    followers: int = 0


class DurableTools:
    """The tools of one session in this process. One for each ``Conversation``: see ``SharedTools``.

    Args:
        tools: of the process.
        conversation: open.
        commit_wait_s: longest wait for a commit before the model is told that there is none.
        drain_s: see ``drain``.

    Raises:
        ConfigError: two tools have one name, or a schema has rules that are not checked.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        conversation: Conversation,
        *,
        commit_wait_s: float = COMMIT_WAIT_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        check_tools(tools)
        self._tools = {tool.name: tool for tool in tools}
        self._conversation = conversation
        self._commit_wait_s = commit_wait_s
        self._drain_s = drain_s
        self._runs: dict[str, _Run] = {}
        # Keys of calls whose TOOL_RESULT is queued right behind their TOOL_CALL.
        self._withdrawn: set[str] = set()

    def offer(self, llm: FrameProcessor, context: LLMContext, *, turn: Event | None = None) -> bool:
        """Put the tools into the context of one pipeline and answer the model's calls there.

        Args:
            llm: the service that answers. An embedded engine knows no tools and is offered none.
            context: of that pipeline.
            turn: the USER_TURN that is answered; None for the newest one at the time of each call.

        Returns:
            Whether they were offered.
        """
        if not self._tools or not isinstance(llm, LLMService) or isinstance(llm, EngineLlmService):
            return False
        for tool in self._tools.values():
            llm.register_function(tool.name, partial(self._answer, turn), cancel_on_interruption=True)
        offered = [
            FunctionSchema(
                name=tool.name,
                description=tool.description,
                properties=dict(tool.parameters.get("properties", {})),
                required=list(tool.parameters.get("required", ())),
            )
            for tool in self._tools.values()
        ]
        given = context.tools if isinstance(context.tools, ToolsSchema) else ToolsSchema([])
        others = [schema for schema in given.standard_tools if schema.name not in self._tools]
        context.set_tools(ToolsSchema([*others, *offered], custom_tools=given.custom_tools))
        return True

    async def recover(self) -> None:
        """Settle every call that a crash left without a result. Calls that run here are let be.

        Returns when all are settled; idempotent ones run side by side, each within its ``timeout_s``. Another
        ``recover`` at the same time joins this one. A session that is no longer ours stays as it is:
        ``Conversation.lost`` says so.
        """
        settled = {
            event.payload.get("call_id")
            for event in self._conversation.events
            if event.kind is Kind.TOOL_RESULT
        }
        for event in self._conversation.events:
            if event.kind is not Kind.TOOL_CALL or event.payload["call_id"] in settled:
                continue
            if event.key not in self._runs and event.key not in self._withdrawn:
                self._start(_Call.of(event), recovery=True)
        recoveries = [run.task for run in self._runs.values() if run.recovery]
        if recoveries:
            await asyncio.wait(recoveries)
        for task in recoveries:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, StoreError | CapacityError):
                raise error

    async def drain(self) -> None:
        """Let what has begun end, for ``drain_s`` at most; what has not is withdrawn.

        What is cut off stays without a result, for the next ``recover``.
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
            logger.warning(f"session {self._conversation.session_id}: {len(late)} tools did not end in time")
            await asyncio.wait(late)

    async def call(self, name: str, arguments: object, *, turn: Event | None = None) -> Mapping[str, Any]:
        """One call of the model. What it is told of it; cancel this, and what has not begun is withdrawn.

        Args:
            name: of one of the tools.
            arguments: as the model gives them; what does not fit the schema is not run.
            turn: see ``offer``.

        Raises:
            FencedError, UnknownSessionError: the session is no longer ours.
            CapacityError, StoreError: the store does not take the call, so it was not run.
        """
        tool = self._tools[name]
        faults = _argument_faults(tool, arguments)
        if faults or not isinstance(arguments, Mapping):
            return _failure(f"the arguments do not fit: {'; '.join(faults)}")
        wish = tool.name, _canonical(arguments)
        run = next((run for run in self._runs.values() if run.call.wish == wish), None)
        if run is not None:
            return _repeated(await self._follow(run, tool))
        turn_seq = self._turn_seq(turn)
        known = self._result_since(wish, turn_seq)
        if known is not None:
            return _repeated(known)
        call = self._new_call(tool, arguments, turn_seq)
        if call.key in self._withdrawn:
            # Its commit and that of its result still wait.
            return _repeated(_failure(WITHDRAWN))
        return await self._follow(self._start(call), tool)

    # From a call to its run

    async def _answer(self, turn: Event | None, params: FunctionCallParams) -> None:
        try:
            told = await self.call(params.function_name, params.arguments, turn=turn)
        except (FencedError, UnknownSessionError) as error:
            # Nobody answers in this session from here any more.
            logger.warning(f"tool {params.function_name}: no record of its call, {error}")
            silent = FunctionCallResultProperties(run_llm=False)
            await params.result_callback(_failure(GONE), properties=silent)
            return
        except (CapacityError, StoreError):
            told = _failure(NOT_RUN)
        await params.result_callback(told)

    def _turn_seq(self, turn: Event | None) -> int:
        if turn is not None:
            return turn.seq
        turns = (event.seq for event in self._conversation.events if event.kind is Kind.USER_TURN)
        return max(turns, default=0)

    def _new_call(self, tool: Tool, arguments: Mapping[str, Any], turn_seq: int) -> _Call:
        canonical = _canonical(arguments)
        digest = hashlib.sha256(f"{tool.name}\n{canonical}".encode()).hexdigest()
        key = f"tool.{turn_seq}.{digest[:32]}"
        effect_key = f"{self._conversation.session_id}.{key}"
        if tool.idempotent:
            # The person asks again for what may have happened already: the same key finds that out.
            effect_key = self._unknown_effect((tool.name, canonical)) or effect_key
        return _Call(
            key=key,
            # The provider's own may come twice in a session, which other providers refuse. At most 40
            # characters, OpenAI's limit.
            call_id=f"call_{turn_seq}_{digest[:16]}",
            name=tool.name,
            arguments=json.loads(canonical),
            idempotent=tool.idempotent,
            effect_key=effect_key,
        )

    def _results(self, wish: tuple[str, str]) -> list[tuple[_Call, Event]]:
        """Earlier calls of a wish with their results, oldest first."""
        calls: dict[str, _Call] = {}
        found: list[tuple[_Call, Event]] = []
        for event in self._conversation.events:
            if event.kind is Kind.TOOL_CALL and event.payload["name"] == wish[0]:
                call = _Call.of(event)
                if call.wish == wish:
                    calls[call.call_id] = call
            elif event.kind is Kind.TOOL_RESULT and event.payload["call_id"] in calls:
                found.append((calls[event.payload["call_id"]], event))
        return found

    def _result_since(self, wish: tuple[str, str], turn_seq: int) -> Mapping[str, Any] | None:
        results = self._results(wish)
        if not results or results[-1][1].seq < turn_seq:
            return None
        payload = results[-1][1].payload
        return _told(Outcome(payload["outcome"]), payload["result"])

    def _unknown_effect(self, wish: tuple[str, str]) -> str | None:
        """The key of the newest call when nobody knows yet what became of it."""
        results = self._results(wish)
        if not results:
            return None
        key = results[-1][0].effect_key
        outcomes = {event.payload["outcome"] for call, event in results if call.effect_key == key}
        return key if Outcome.UNKNOWN in outcomes and Outcome.DONE not in outcomes else None

    async def _follow(self, run: _Run, tool: Tool) -> Mapping[str, Any]:
        """Wait for a run. Whoever is cancelled leaves it to the others; the last one withdraws it.

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
            return _told(Outcome.UNKNOWN, {"error": NO_RECORD})
        if run.task.cancelled():
            if run.began.done():
                return _told(Outcome.UNKNOWN, {"error": UNKNOWN})
            return _failure(WITHDRAWN)
        return run.task.result()

    # A run, owned here

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
        """What has not begun will not: its TOOL_CALL waits for its commit, and the result goes behind it."""
        if run.began.done() or run.task.done() or run.call.key in self._withdrawn:
            return False
        self._withdrawn.add(run.call.key)
        run.task.cancel()
        self._conversation.record(self._result_draft(run.call, Outcome.FAILED, {"error": WITHDRAWN}))
        return True

    async def _perform(self, run: _Run) -> Mapping[str, Any]:
        newest_seq = max((event.seq for event in self._conversation.events), default=0)
        [event] = await self._conversation.append(self._call_draft(run.call))
        if event.seq <= newest_seq:
            # It stood there already, and whether it ran then is not known.
            return await self._settle(run)
        run.began.set_result(None)
        return await self._take_effect(self._tools[run.call.name], run.call)

    async def _settle(self, run: _Run) -> Mapping[str, Any]:
        """Find out about a call that was committed by somebody who then died."""
        run.began.set_result(None)
        call = run.call
        tool = self._tools.get(call.name)
        if (
            tool is None
            or not (tool.idempotent and call.idempotent)
            or _argument_faults(tool, call.arguments)
        ):
            return await self._record(call, Outcome.UNKNOWN, {"error": UNKNOWN})
        return await self._take_effect(tool, call)

    async def _take_effect(self, tool: Tool, call: _Call) -> Mapping[str, Any]:
        started_s = asyncio.get_running_loop().time()
        outcome, result = await _run(tool, call)
        took_ms = round((asyncio.get_running_loop().time() - started_s) * 1_000)
        logger.info(f"tool {tool.name}: {outcome} after {took_ms} ms")
        return await self._record(call, outcome, result)

    async def _record(self, call: _Call, outcome: Outcome, result: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            await self._conversation.append(self._result_draft(call, outcome, result))
        except (FencedError, UnknownSessionError):
            raise
        except CapacityError as error:
            logger.error(f"tool {call.name}: its result is lost: {error}")
            return _told(Outcome.UNKNOWN, {"error": NO_RECORD})
        except StoreError:
            # The store has a limit of its own.
            result = {"note": NOT_SHOWN}
            await self._conversation.append(self._result_draft(call, outcome, result))
        return _told(outcome, result)

    def _call_draft(self, call: _Call) -> Draft:
        return self._conversation.draft(
            Kind.TOOL_CALL,
            "bot",
            key=call.key,
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            idempotent=call.idempotent,
            effect_key=call.effect_key,
        )

    def _result_draft(self, call: _Call, outcome: Outcome, result: Mapping[str, Any]) -> Draft:
        return self._conversation.draft(
            Kind.TOOL_RESULT,
            "tool",
            key=f"{call.key}.result",
            call_id=call.call_id,
            name=call.name,
            result=result,
            outcome=outcome.value,
        )


@dataclass(slots=True)
class _Shared:
    """Tools of a session, and how many use them."""

    tools: DurableTools
    users: int = 0


class SharedTools:
    """The tools of a process, for the sessions that are open in it.

    Every transport of a session uses the same ``DurableTools``: one that is opened while a tool of another
    one runs must not take that call for one that a crash has left.

    Args:
        tools: of the process.

    Raises:
        ConfigError: see ``DurableTools``.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        check_tools(tools)
        self._tools = tuple(tools)
        self._open: dict[Conversation, _Shared] = {}

    @asynccontextmanager
    async def of(self, conversation: Conversation) -> AsyncIterator[DurableTools]:
        """Hold the tools of a session; inside of its ``Conversations.open``. The last one out drains them."""
        shared = self._open.get(conversation)
        if shared is None:
            shared = self._open[conversation] = _Shared(DurableTools(self._tools, conversation))
        shared.users += 1
        try:
            yield shared.tools
        finally:
            shared.users -= 1
            try:
                if not shared.users:
                    await shared.tools.drain()
            finally:
                # Somebody may have come while the last run ended.
                if not shared.users:
                    self._open.pop(conversation, None)


def check_tools(tools: Sequence[Tool]) -> None:
    """Make sure that tools can be offered together.

    Raises:
        ConfigError: two have one name, or a schema has rules that are not checked.
    """
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two tools are called {name!r}")
    for tool in tools:
        faults = schema_faults(tool.parameters)
        if faults:
            raise ConfigError(f"the tool {tool.name!r}: {'; '.join(faults)}")


async def _run(tool: Tool, call: _Call) -> tuple[Outcome, Mapping[str, Any]]:
    """Take effect, whatever comes of it."""
    try:
        async with asyncio.timeout(tool.timeout_s):
            result = await tool.run(call.arguments, key=call.effect_key)
    except EffectUnknownError as error:
        return Outcome.UNKNOWN, {"error": f"{error}; {UNKNOWN}"}
    except EngineError as error:
        return Outcome.FAILED, {"error": str(error)}
    except TimeoutError:
        return Outcome.UNKNOWN, {"error": f"no answer within {tool.timeout_s:g} s; {UNKNOWN}"}
    except Exception as error:
        # Somebody else's code: a bug in it must not leave the call without a result.
        logger.exception(f"tool {tool.name} broke")
        return Outcome.UNKNOWN, {"error": f"it broke ({type(error).__name__}); {UNKNOWN}"}
    return Outcome.DONE, _storable(result)


def _storable(result: object) -> Mapping[str, Any]:
    """A result as the store and the model take it; Pipecat does not ask the model again for an empty one."""
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


def _canonical(arguments: object) -> str:
    return json.dumps(arguments, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _told(outcome: Outcome, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the model reads of a result."""
    return result if outcome is Outcome.DONE else {"outcome": outcome.value, **result}


def _failure(reason: str) -> Mapping[str, Any]:
    return _told(Outcome.FAILED, {"error": reason})


def _repeated(told: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"result": told, "note": REPEATED}
