"""Tools that are Python functions: from a name in a deployment to the result that the model reads."""

import asyncio
import functools
import itertools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import aiohttp
import pytest
from pydantic import BaseModel, Field, model_serializer

from parley.configs.deployment import Thinking
from parley.core.errors import ConfigError, EngineError
from parley.models.tools import (
    MAX_RESULT_BYTES,
    NOT_SHOWN,
    EffectUnknownError,
    Tool,
    ToolSettings,
)
from parley.models.tools.function_tool import MOST_AT_ONCE
from parley.pipelines.engines.tool_plan import create_tool, plan_tools

HERE = __name__


@dataclass
class Hours:
    """Opening hours."""

    opens: int
    closes: int


def opening_hours(
    day: Annotated[Literal["saturday", "sunday"], Field(description="day of the week")], count: int = 1
) -> Hours:
    """Look up
    when the bank is open.
    """
    return Hours(opens=10, closes=12 + 2 * count)


async def thread_name() -> str:
    """Return the name of the thread."""
    return threading.current_thread().name


def blocking_thread_name() -> str:
    """Return the name of the thread."""
    return threading.current_thread().name


def refuses() -> None:
    """Refuse."""
    raise EngineError("the shop is closed", engine="shop")


def waits_in_vain() -> None:
    """Ask a peer that does not answer."""
    raise TimeoutError("the peer does not answer")


async def waits_in_vain_on_the_loop() -> None:
    """Ask a peer that does not answer."""
    raise TimeoutError("the peer does not answer")


def takes_from_an_empty_list() -> None:
    """Take the next one."""
    next(iter([]))


def exits() -> None:
    """End the program."""
    sys.exit(1)


def is_cancelled() -> None:
    """Give up."""
    raise asyncio.CancelledError


def gives_a_lock() -> object:
    """Return what is not JSON."""
    return threading.Lock()


def is_a_generator() -> Iterator[int]:
    """Count."""
    yield 1


async def is_an_endless_stream() -> AsyncIterator[int]:
    """Count."""
    yield 1


def gives_a_generator() -> Iterator[int]:
    """Count without an end."""
    return (number for number in itertools.count())


class Page(BaseModel):
    """Part of a catalogue; notes the thread in which it becomes JSON."""

    lines: list[str]

    @model_serializer
    def as_json(self) -> dict[str, list[str]]:
        converted_in.append(threading.current_thread())
        return {"lines": self.lines}


converted_in: list[threading.Thread] = []


def gives_a_large_result(lines: int) -> Page:
    """List the catalogue."""
    return Page(lines=["line"] * lines)


async def gives_a_large_result_on_the_loop(lines: int) -> Page:
    """List the catalogue."""
    return Page(lines=["line"] * lines)


def gives_escaped_text(characters: int) -> str:
    """Return a text that is longer as JSON."""
    return "ü" * characters


def gives_itself() -> list[object]:
    """Return a list that contains itself."""
    result: list[object] = []
    result.append(result)
    return result


def undescribed(day: str) -> str:
    return day


def takes_any(*days: str) -> None:
    """Take days."""


def takes_a_private_name(day: str, _x: int = 0) -> None:
    """Take a day."""


def takes_a_name_of_pydantic(model_config: str) -> None:
    """Take a configuration."""


def takes_a_name_of_python(day: str, __base__: int = 0) -> None:
    """Take a day."""


def takes_a_set(days: set[str]) -> None:
    """Take days."""


def says_no_such_type(day: "NoSuchType") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Take a day."""


def takes_an_odd_class(hours: threading.Event) -> None:
    """Take hours."""


def takes_a_broken_annotation(day: "a day") -> None:  # type: ignore[syntax]  # noqa: F722
    """Take a day."""


class GreeterSettings(ToolSettings, frozen=True):
    """Settings of a greeter, which has a name and a deadline of its own."""

    name: str = "greet"
    timeout_s: float = 1.5
    word: str = Field("hello", min_length=1)


class Greeter:
    """Greet a person."""

    def __init__(self, settings: GreeterSettings) -> None:
        self._word = settings.word

    def __call__(self, person: str) -> str:
        return f"{self._word} {person}"


class WithoutSettings:
    """Greet."""

    def __call__(self) -> None: ...


class WithoutItsFile:
    """Greet."""

    def __init__(self, settings: GreeterSettings) -> None:
        raise FileNotFoundError("no names.txt\nin this folder")

    def __call__(self) -> None: ...


class NotCallable:
    """Greet."""

    def __init__(self, settings: GreeterSettings) -> None: ...


greeter = Greeter(GreeterSettings(description="Greet."))
partly_given = functools.partial(opening_hours, count=2)

held = threading.Event()


def hangs() -> str:
    """Wait for a peer that does not answer."""
    held.wait()
    return "late"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    held.clear()
    yield held
    held.set()


def tool(name: str, /, **settings: Any) -> Tool:
    """Return a tool of this module, as a deployment has it."""
    [(target, checked)] = plan_tools(thinking(f"{HERE}:{name}", **settings))

    # A function uses no HTTP session.
    return create_tool(target, checked, http=None)  # type: ignore[arg-type]


def thinking(name: str, /, **settings: Any) -> Thinking:
    return Thinking.model_validate({"tools": [{"name": name, "settings": settings}]})


def test_a_function_describes_itself():
    made = tool("opening_hours")
    assert made.name == "opening_hours"
    assert made.description == "Look up when the bank is open."
    assert made.parameters["required"] == ["day"]
    assert made.parameters["additionalProperties"] is False
    assert made.parameters["properties"]["day"]["enum"] == ["saturday", "sunday"]
    assert made.parameters["properties"]["day"]["description"] == "day of the week"
    assert not made.idempotent


def test_the_deployment_may_describe_it_in_other_words():
    made = tool("opening_hours", name="hours", description="Hours.", timeout_s=2, idempotent=True)
    assert (made.name, made.description, made.timeout_s, made.idempotent) == ("hours", "Hours.", 2, True)


async def test_arguments_arrive_by_name_and_a_result_becomes_an_object():
    assert await tool("opening_hours").run({"day": "sunday", "count": 2}, key="a") == {
        "opens": 10,
        "closes": 16,
    }


async def test_a_class_is_created_with_its_settings_and_called():
    made = tool("Greeter", word="good evening")
    assert (made.name, made.description, made.timeout_s) == ("greet", "Greet a person.", 1.5)
    assert list(made.parameters["properties"]) == ["person"]
    assert await made.run({"person": "Ann"}, key="a") == {"result": "good evening Ann"}


async def test_a_function_runs_in_a_thread_and_a_coroutine_function_on_the_loop():
    ours = threading.current_thread().name
    assert await tool("thread_name").run({}, key="a") == {"result": ours}
    assert (await tool("blocking_thread_name").run({}, key="a"))["result"].startswith("tool.")


async def test_arguments_of_another_type_have_no_effect():
    with pytest.raises(EngineError, match="day: Input should be") as caught:
        await tool("opening_hours").run({"day": "monday"}, key="a")
    assert not isinstance(caught.value, EffectUnknownError)


async def test_an_error_of_the_function_reaches_the_model_as_it_is():
    with pytest.raises(EngineError, match="the shop is closed") as caught:
        await tool("refuses").run({}, key="a")
    assert not isinstance(caught.value, EffectUnknownError)


@pytest.mark.parametrize("name", ["waits_in_vain", "waits_in_vain_on_the_loop"])
async def test_a_timeout_of_the_functions_own_is_not_that_of_the_run(name: str):
    with pytest.raises(TimeoutError, match="the peer does not answer"):
        await tool(name).run({}, key="a")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("takes_from_an_empty_list", "StopIteration"),
        ("exits", "SystemExit"),
        ("is_cancelled", "CancelledError"),
    ],
)
async def test_an_exception_that_the_loop_does_not_take_is_a_failure_of_the_function(name: str, error: str):
    with pytest.raises(RuntimeError, match=f"it raised {error}"):
        await tool(name, timeout_s=2).run({}, key="a")


async def test_a_result_that_is_not_json_leaves_the_effect_unknown():
    with pytest.raises(EffectUnknownError, match="its result is not JSON"):
        await tool("gives_a_lock").run({}, key="a")


@pytest.mark.parametrize("name", ["gives_a_large_result", "gives_a_large_result_on_the_loop"])
async def test_a_result_is_converted_in_a_thread_unless_it_is_too_large(name: str):
    made = tool(name)
    converted_in.clear()
    assert await made.run({"lines": MAX_RESULT_BYTES}, key="a") == {"note": NOT_SHOWN}
    assert converted_in == []
    assert await made.run({"lines": 2}, key="b") == {"lines": ["line"] * 2}
    assert len(converted_in) == 1 and converted_in[0] is not threading.current_thread()


async def test_a_result_is_measured_as_it_is_written_down():
    made = tool("gives_escaped_text")
    assert await made.run({"characters": 10}, key="a") == {"result": "ü" * 10}
    assert await made.run({"characters": MAX_RESULT_BYTES // 5}, key="b") == {"note": NOT_SHOWN}


async def test_a_result_without_an_end_leaves_the_effect_unknown():
    with pytest.raises(EffectUnknownError, match="a generator is read once, and may have no end"):
        await tool("gives_a_generator").run({}, key="a")
    assert await tool("gives_itself").run({}, key="a") == {"note": NOT_SHOWN}


async def test_hanging_runs_are_given_up_and_then_refused(release: threading.Event):
    made = tool("hangs", timeout_s=0.1)
    runs = [made.run({}, key=str(number)) for number in range(MOST_AT_ONCE)]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert all(isinstance(each, EffectUnknownError) for each in ended)
    assert "no result within 0.1 s" in str(ended[0])
    with pytest.raises(EngineError, match="too many of its runs have not ended") as caught:
        await made.run({}, key="refused")
    assert not isinstance(caught.value, EffectUnknownError)
    release.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await made.run({}, key="again") == {"result": "late"}
            except EngineError:
                await asyncio.sleep(0.01)
            else:
                break


def test_a_hanging_run_does_not_keep_the_process_from_exiting():
    program = (
        "import asyncio\n"
        "from parley.core.errors import EngineError\n"
        f"from {HERE} import tool\n"
        "try:\n"
        "    asyncio.run(tool('hangs', timeout_s=0.1).run({}, key='a'))\n"
        "except EngineError as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "no result within 0.1 s" in ended.stdout


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("undescribed", {}, "write a docstring, or settings.description"),
        ("takes_any", {}, "the parameter 'days' cannot be given by name"),
        ("takes_a_private_name", {}, "a parameter cannot be named '_x'"),
        ("takes_a_name_of_pydantic", {}, "a parameter cannot be named 'model_config'"),
        ("takes_a_name_of_python", {}, "a parameter cannot be named '__base__'"),
        ("takes_a_set", {}, "'uniqueItems' is not checked here"),
        ("is_a_generator", {}, "is a generator: return a list instead"),
        ("is_an_endless_stream", {}, "is a generator: return a list instead"),
        (
            "says_no_such_type",
            {},
            "a function with types: NameError: name 'NoSuchType' is not defined",
        ),
        ("opening_hours", {"word": "x"}, "unknown field 'word'"),
        ("Greeter", {"word": ""}, "word: String should have at least 1 character"),
        ("WithoutSettings", {}, "takes no 'settings' of a pydantic model"),
        ("NotCallable", {}, "has neither 'run' nor '__call__'"),
        ("no_such_function", {}, "cannot be imported"),
        ("partly_given", {}, "an instance of functools:partial is no tool: name a function or a class"),
        ("greeter", {}, f"an instance of {HERE}:Greeter is no tool: name a function or a class"),
        ("HERE", {}, "is neither a class nor a function, but of the type str"),
        ("takes_an_odd_class", {}, "takes_an_odd_class: PydanticSchemaGenerationError: Unable to generate"),
        ("takes_a_broken_annotation", {}, "is not a function with types: SyntaxError"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_before_the_start(name: str, settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        plan_tools(thinking(f"{HERE}:{name}", **settings))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_constructor_that_fails_is_a_mistake_of_the_deployment():
    with pytest.raises(ConfigError) as caught:
        tool("WithoutItsFile")
    assert str(caught.value) == (
        f"the tool '{HERE}:WithoutItsFile' cannot be created: FileNotFoundError: no names.txt in this folder"
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an installed package with a class of ``Tool`` and a function on the path."""
    (tmp_path / "parrot_tools.py").write_text(
        "from parley.models.tools import ToolSettings\n"
        "class Asks:\n"
        "    parameters = {'type': 'object', 'properties': {}}\n"
        "    def __init__(self, settings: ToolSettings, http):\n"
        "        self.name, self.description = settings.name, settings.description\n"
        "        self.timeout_s, self.idempotent = settings.timeout_s, settings.idempotent\n"
        "        self._http = http\n"
        "    async def run(self, arguments, *, key):\n"
        "        return {'key': key, 'is_open': not self._http.closed}\n"
        "def squawk():\n"
        "    'Squawk.'\n"
        "    return 'squawk'\n"
    )
    info = tmp_path / "parrot_tools-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-tools\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[parley.tool]\nasks = parrot_tools:Asks\nsquawk = parrot_tools:squawk\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
async def test_a_package_registers_a_class_and_a_function_by_entry_points():
    asks = {"name": "asks", "settings": {"name": "ask", "description": "Ask."}}
    planned = plan_tools(Thinking.model_validate({"tools": [asks, {"name": "squawk"}]}))
    assert [settings.name for _, settings in planned] == ["ask", "squawk"]
    async with aiohttp.ClientSession() as http:
        ask, squawk = [create_tool(name, settings, http) for name, settings in planned]
        assert await ask.run({}, key="k") == {"key": "k", "is_open": True}
        assert await squawk.run({}, key="k") == {"result": "squawk"}
