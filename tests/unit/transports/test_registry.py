"""Rows of transports: the interface that the product uses, and no comparison with a name."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipecat.runner.types import SmallWebRTCRunnerArguments, WebSocketRunnerArguments

from parley.core.errors import ConfigError
from parley.serving.gateway.sockets.eval_socket import EvalArguments
from parley.serving.gateway.webrtc.routes import BrowserArguments
from parley.transports.registry import TRANSPORTS, Command, TransportRegistry, TransportRow
from scripts.write_transports import DOCUMENT, written

ROOT = Path(__file__).parents[3]
PRODUCT = (
    "bot.py runner.py core audio turn_taking sequencer protocols runtime models session_store recording "
    "telemetry transports processors serving configs pipelines command"
).split()
ROWS = TRANSPORTS.rows()
# Without words that have other meanings: a mode and a kind of content, and the type of a connection.
NAMES = ({row.name for row in ROWS} | {row.recorded_as for row in ROWS}) - {"", "text", "websocket"}
QUOTED = re.compile(rf"[\"'](?:{'|'.join(map(re.escape, sorted(NAMES)))})[\"']")
# Modules that read such a word in a message of Pipecat's clients, where it is no name of a row.
READERS = {"serving/gateway/sockets/eval_socket.py", "serving/gateway/webrtc/routes.py"}


def constants(tree: ast.Module, of_modules: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the texts that names of a module stand for: constants of its own, and those that it imports."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() as text)):
                found[name] = text
            case ast.ImportFrom(module=str() as module, names=names):
                of_module = of_modules.get(module, {})
                found |= {
                    each.asname or each.name: of_module[each.name] for each in names if each.name in of_module
                }
    return found


def named(node: ast.expr, known: Mapping[str, str]) -> set[str]:
    """Return the names of transports in an expression, alone or in a tuple, list or set."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    texts += [known.get(part.id, "") for part in parts if isinstance(part, ast.Name)]
    return {text for text in texts if isinstance(text, str) and text in NAMES}


def comparisons(
    path: Path, of_modules: Mapping[str, Mapping[str, str]] | None = None, *, root: Path = ROOT
) -> list[str]:
    """Return the places of a module that compare something with the name of a transport.

    ``of_modules`` has the constants of each module from which it may import them.
    """
    found = []
    tree = ast.parse(path.read_text())
    known = constants(tree, of_modules or {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            names = set[str]().union(*(named(part, known) for part in (node.left, *node.comparators)))
        elif isinstance(node, ast.MatchValue):
            names = named(node.value, known)
        else:
            continue
        if names:
            found.append(f"{path.relative_to(root)}:{node.lineno}: {', '.join(sorted(names))}")
    return found


def test_product_code_compares_no_transport_by_name():
    modules = [
        module
        for part in PRODUCT
        for module in ([ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py")))
    ]
    # Most modules have no such name and import none: parsing them would take seconds.
    texts = {module: module.read_text(encoding="utf-8") for module in modules}
    of_modules = {
        f"parley.{'.'.join(module.relative_to(ROOT).with_suffix('').parts)}": constants(ast.parse(text), {})
        for module, text in texts.items()
        if QUOTED.search(text)
    }
    named_there = [name for name, known in of_modules.items() if NAMES & set(known.values())]
    imports = re.compile(rf"from (?:{'|'.join(map(re.escape, named_there))}) import")
    chosen = [module for module, text in texts.items() if QUOTED.search(text) or imports.search(text)]
    found = [place for module in chosen for place in comparisons(module, of_modules)]
    assert {place.partition(":")[0] for place in found} == READERS


def test_a_comparison_with_a_name_would_be_found(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text("if transport in ('file', 'eval') or name == 'webrtc':\n    pass\n")
    assert comparisons(module, root=tmp_path) == ["module.py:1: eval, file", "module.py:1: webrtc"]


def test_a_comparison_with_a_constant_would_be_found(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        "from parley.a import RELAY as BY_TEXT\nOWN = 'file'\nnetwork == BY_TEXT\nname in (OWN, 'x')\n"
    )
    of_modules = {"parley.a": {"RELAY": "twilio_relay"}}
    assert comparisons(module, of_modules, root=tmp_path) == [
        "module.py:3: twilio_relay",
        "module.py:4: file",
    ]


def test_an_unknown_transport_lists_the_known_ones():
    with pytest.raises(ConfigError, match="unknown transport 'pigeon' .known: .*webrtc"):
        TRANSPORTS.row("pigeon")


@pytest.mark.parametrize("row", [row for row in ROWS if row.target], ids=lambda row: row.name)
def test_the_factory_of_each_row_is_there_or_says_which_extra_it_needs(row: TransportRow):
    try:
        assert callable(TRANSPORTS.factory(row.name))
    except ConfigError as error:
        assert row.extra is not None and f"the extra {row.extra!r}" in str(error)


def test_a_row_that_is_not_opened_by_a_factory_says_so():
    with pytest.raises(ConfigError, match="transport 'file' cannot be opened by a factory"):
        TRANSPORTS.factory("file")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (SmallWebRTCRunnerArguments, "webrtc"),
        (BrowserArguments, "webrtc"),
        (WebSocketRunnerArguments, "eval"),
        (EvalArguments, "eval"),
    ],
)
def test_arguments_of_a_runner_lead_to_their_row(arguments: type, name: str):
    assert TRANSPORTS.of_arguments(object.__new__(arguments)).name == name


def test_arguments_of_no_transport_are_refused():
    with pytest.raises(ConfigError, match="there is no transport for object"):
        TRANSPORTS.of_arguments(object())


def test_what_is_served_is_what_there_is_a_path_of():
    assert TRANSPORTS.served(["/health", "/api/offer", "/twilio/media/{token}"]) == ["webrtc", "twilio"]
    assert TRANSPORTS.served([]) == []


def test_each_way_of_the_command_is_of_one_row_at_least():
    assert {row.command for row in ROWS} - {None} == set(Command)


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.capabilities.is_phone and row.capabilities.audio],
    ids=lambda row: row.name,
)
def test_a_telephone_call_is_recorded_as_one_whichever_network_brings_it(row: TransportRow):
    assert row.recorded_as == "phone" and row.capabilities.has_room and not row.capabilities.speaks_rtvi


def test_a_missing_variable_is_named():
    row = TransportRow(name="room", target="", capabilities=ROWS[0].capabilities, env=("A_KEY", "A_URL"))
    with pytest.raises(ConfigError, match="transport 'room' needs A_URL in the environment"):
        row.read_environment({"A_KEY": "k", "A_URL": ""})
    assert row.read_environment({"A_KEY": "k", "A_URL": "u", "B": "b"}) == {"A_KEY": "k", "A_URL": "u"}


def test_the_document_has_the_rows_as_they_are():
    document = DOCUMENT.read_text(encoding="utf-8")
    assert written(document) == document
    assert all(f"| `{row.name}` | {row.summary} |" in document for row in ROWS)


def test_a_room_says_which_variable_or_package_it_lacks():
    rooms = [row for row in ROWS if row.command is Command.ROOM]
    assert [row.name for row in rooms] == ["livekit", "daily"]
    for row in rooms:
        with pytest.raises(ConfigError, match=f"needs the extra '{row.extra}'|needs ") as error:
            TRANSPORTS.arguments_from(row.name, {})
        assert f"{', '.join(row.env)} in the environment" in str(error.value)


class BarnArguments:
    """Arguments of a room of another package."""


def barn(**changes: Any) -> TransportRow:
    row = TransportRow(
        name="barn",
        target="barn:open_barn",
        capabilities=ROWS[0].capabilities,
        command=Command.ROOM,
        arguments=("BarnArguments",),
        from_environment="barn:barn_arguments",
    )
    return replace(row, **changes)


def barn_with_a_route() -> TransportRow:
    return barn(routes=("/barn",))


def barn_that_serves() -> TransportRow:
    return barn(command=Command.SERVE)


def barn_by_the_name_of_another() -> TransportRow:
    return barn(name="daily")


def barn_with_arguments_of_another() -> TransportRow:
    return barn(arguments=("DailyRunnerArguments",))


def barn_that_fails() -> TransportRow:
    raise RuntimeError("the door is closed")


def no_barn() -> None:
    return None


def test_a_room_of_another_package_is_found_by_its_function_its_name_and_its_arguments():
    registry = TransportRegistry(ROWS)
    row = registry.row(f"{__name__}:barn")
    assert row.name == "barn"
    assert registry.row("barn") is registry.of_arguments(BarnArguments()) is row
    # The document and the gateway have Parley's own.
    assert registry.rows() == ROWS


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("barn_with_a_route", "a package adds rooms only"),
        ("barn_that_serves", "a package adds rooms only"),
        ("barn_by_the_name_of_another", "its row has the name 'daily'"),
        ("barn_with_arguments_of_another", "DailyRunnerArguments brings another transport"),
        ("barn_that_fails", "has no row: .*the door is closed"),
        ("no_barn", "expected a TransportRow, not NoneType"),
        ("no_such_function", "cannot be imported"),
    ],
)
def test_a_row_that_is_not_that_of_a_room_is_refused(function: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        TransportRegistry(ROWS).row(f"{__name__}:{function}")
