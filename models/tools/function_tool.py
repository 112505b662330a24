"""Tool that is a Python function: its annotated parameters are the schema of its arguments.

A plain function runs in a thread, because it may wait for a disk or a network; a coroutine function is
awaited on the event loop, and must not block.

A result becomes JSON in a thread as well, after it was found to be no larger than a model may be given: the
conversion does not let other threads run.

A thread cannot be ended. When the deadline of a run has passed, its thread goes on and keeps its place: after
``MOST_AT_ONCE`` hanging runs the tool refuses calls, and nothing else is held up. The threads are daemons, so
that a hanging run does not keep the process from exiting.
"""

import asyncio
import dataclasses
import inspect
import json
import threading
import typing
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from parley.core.errors import ConfigError, EngineError, one_line
from parley.core.registry import factory_text
from parley.models.tools import MAX_RESULT_BYTES, NOT_SHOWN, EffectUnknownError, ToolSettings
from parley.models.tools.arguments import schema_faults

# Runs of one tool at the same time, in all calls of the process.
MOST_AT_ONCE = 16
_SIZED = (str, bytes, bytearray, list, tuple, set, frozenset, dict)


def is_tool_class(factory: Callable[..., Any]) -> bool:
    """Return whether the instances of a class are tools themselves (``Tool``), and not functions."""
    return isinstance(factory, type) and hasattr(factory, "run")


def arguments_model(function: Callable[..., Any]) -> type[BaseModel]:
    """Return the model of a function's arguments.

    Args:
        function: a function, or a class whose instances are called.

    Raises:
        ConfigError: it cannot be called with arguments by name, or its schema has rules that are not checked.
    """
    where = factory_text(function)
    if not hasattr(function, "__qualname__"):
        raise ConfigError(f"{where} is no tool: name a function or a class")
    called = function
    if isinstance(function, type):
        called = function.__call__
        if not inspect.isfunction(called):
            raise ConfigError(f"{where} has neither 'run' nor '__call__'")
    try:
        hints = typing.get_type_hints(called, include_extras=True)
        parameters = list(inspect.signature(called).parameters.values())
    except Exception as error:
        # Its annotations are evaluated.
        raise ConfigError(f"{where} is not a function with types: {one_line(error)}") from error
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigError(f"{where} is a generator: return a list instead")
    fields: dict[str, Any] = {}
    # The first parameter of a method is its instance.
    for parameter in parameters[1:] if isinstance(function, type) else parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{where}: the parameter {parameter.name!r} cannot be given by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    # Pydantic leaves names out that begin with an underscore, and those that it uses itself.
    _check_names(where, fields, [name for name in fields if not name.startswith("_")])
    try:
        model: type[BaseModel] = create_model(
            function.__qualname__, __config__=ConfigDict(extra="forbid"), **fields
        )
        faults = schema_faults(model.model_json_schema())
    except Exception as error:
        # A class may describe itself to pydantic.
        raise ConfigError(f"{where}: {one_line(error)}") from error
    if faults:
        raise ConfigError(f"{where}: {'; '.join(faults)}")
    _check_names(where, fields, model.model_fields)
    return model


def _check_names(where: str, names: Iterable[str], possible: Container[str]) -> None:
    for name in names:
        if name not in possible:
            raise ConfigError(f"{where}: a parameter cannot be named {name!r}")


class _TooLargeError(Exception):
    """Raised when a result is larger than a model may be given."""


class FunctionTool:
    """Tool that calls a function; implements ``Tool``.

    Args:
        settings: settings of the tool.
        function: receives the arguments by name, of the types in its signature.
        arguments: see ``arguments_model``.
    """

    def __init__(
        self, settings: ToolSettings, function: Callable[..., Any], arguments: type[BaseModel]
    ) -> None:
        self.name = settings.name
        self.description = settings.description
        self.parameters: Mapping[str, Any] = arguments.model_json_schema()
        self.idempotent = settings.idempotent
        self.timeout_s = settings.timeout_s
        self._function = function
        self._is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self._arguments = arguments
        self._places = threading.Semaphore(MOST_AT_ONCE)

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Call the function; return its result, or one that is not an object under ``result``."""
        try:
            checked = self._arguments.model_validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise EngineError(f"{place}: {first['msg']}", engine=self.name) from None
        values = {name: getattr(checked, name) for name in self._arguments.model_fields}
        deadline = asyncio.timeout(self.timeout_s)
        try:
            async with deadline:
                if self._is_coroutine:
                    return await asyncio.to_thread(self._as_object, await self._function(**values))
                return await self._in_thread(values)
        except TimeoutError:
            if not deadline.expired():
                # The function's own.
                raise
            raise EffectUnknownError(f"no result within {self.timeout_s:g} s", engine=self.name) from None

    async def _in_thread(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if not self._places.acquire(blocking=False):
            raise EngineError("too many of its runs have not ended", engine=self.name)
        running: Future[dict[str, Any]] = Future()
        # Has begun: the caller may stop waiting for it, and does not end it.
        running.set_running_or_notify_cancel()
        # Not of a pool, whose threads the interpreter waits for when it exits.
        thread = threading.Thread(
            target=self._work, args=(running, values), name=f"tool.{self.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._places.release()
            raise EngineError("no thread could be started", engine=self.name) from error
        return await asyncio.wrap_future(running)

    def _work(self, running: Future[dict[str, Any]], values: Mapping[str, Any]) -> None:
        """Run the function, in its thread; give its place back also where its caller no longer waits."""
        result: dict[str, Any] = {}
        failure: Exception | None = None
        try:
            result = self._as_object(self._called(values))
        except Exception as error:
            failure = error
        self._places.release()
        if failure is not None:
            running.set_exception(failure)
        else:
            running.set_result(result)

    def _called(self, values: Mapping[str, Any]) -> Any:
        """Call the function, in a thread.

        Raises:
            RuntimeError: it raised what would end a task of the event loop, or never reach it.
        """
        try:
            return self._function(**values)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            raise RuntimeError(f"it raised {type(error).__name__}") from error

    def _as_object(self, result: object) -> dict[str, Any]:
        """Return the JSON object of a result, or a note in place of one that is too large. Blocks.

        Raises:
            EffectUnknownError: it is not JSON.
        """
        try:
            _check_size(result)
            value = to_jsonable_python(result)
            # Escaped characters make it longer. Numbers that are not finite are left to the caller.
            if len(json.dumps(value)) > MAX_RESULT_BYTES:
                raise _TooLargeError
        except _TooLargeError:
            return {"note": NOT_SHOWN}
        except Exception as error:
            # The classes of a result may have serializers of their own.
            raise EffectUnknownError(f"its result is not JSON: {error}", engine=self.name) from error
        return value if isinstance(value, dict) else {"result": value}


def _check_size(result: object) -> None:
    """Check that a result is small enough to be converted; in Python, so that other threads go on.

    Raises:
        _TooLargeError: it is not, or it contains itself.
        TypeError: it has a generator, which may have no end.
    """
    left = MAX_RESULT_BYTES
    waiting: list[Any] = [result]
    while waiting:
        value = waiting.pop()
        parts: list[Any] = []
        # Before anything is copied.
        left -= len(value) if isinstance(value, _SIZED) else 1
        if left < 0:
            raise _TooLargeError
        if isinstance(value, Iterator | AsyncIterator):
            raise TypeError(f"a {type(value).__name__} is read once, and may have no end")
        if isinstance(value, dict):
            parts = [*value, *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            parts = list(value)
        elif isinstance(value, BaseModel):
            parts = [value.__dict__, value.__pydantic_extra__]
        elif isinstance(value, Enum):
            parts = [value.value]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
        waiting += parts
