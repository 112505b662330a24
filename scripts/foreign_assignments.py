"""Find assignments to attributes of foreign objects in product code, and fail when there are any.

    python -m scripts.foreign_assignments

An object changes itself: its attributes are assigned by its own methods. Several assignments are not
counted: those to ``self``, to attributes that a class of the same module declares (records of one module
belong to it, but for callbacks), and to an object that the same function has just made (options of a
library, a frame before it is pushed). Nor are those to parts of an object that it made without arguments
(``Options()``), or to attributes that are the whole interface of a library (``IDIOMS``). The rest is a
second way to change an object, which a reader of the class does not find: give the object a method named
for what happens.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from scripts.syntax import parse

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (
    "core", "language", "audio", "turn_taking", "sequencer", "protocols", "runtime", "models",
    "session_store", "recording", "telemetry", "transports", "processors", "serving", "configs", "pipelines",
    "batch", "command",
    "bot.py", "runner.py",
)  # fmt: skip
# By the library that the module imports: attributes that it documents as set by assignment, and that have no
# other way.
IDIOMS: dict[str, frozenset[str]] = {
    # Types of a function of C are declared in this way.
    "ctypes": frozenset({"argtypes", "restype"}),
    # ``av.open`` has no arguments for threads. Format and times of what is encoded are set on
    # streams, their contexts and packets.
    "av": frozenset(
        {"thread_type", "thread_count", "width", "height", "pix_fmt", "time_base", "subtitle_header"}
        | {"stream", "pts", "dts", "duration"}
    ),
    # Before Python 3.12 a filter has no other way to change a line.
    "logging": frozenset({"msg"}),
    # Its services set these on the frame that they hold, for the others that hold it.
    "pipecat": frozenset({"append_to_context", "text_type", "will_be_spoken"}),
    # The client of a service is made with it; these are set when its server has begun.
    "openai": frozenset({"api_key", "base_url"}),
    # This ends a server.
    "uvicorn": frozenset({"should_exit"}),
    # A connection is opened with the bound for unknown clients; it has no method for another one.
    "websockets": frozenset({"max_message_size"}),
}
_OWN = ("self", "cls")


def product_files(root: Path = ROOT) -> Iterator[Path]:
    """Yield the modules of the product, but for the doors to libraries (``check_foreign_members``)."""
    for name in PRODUCT:
        path = root / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        yield from (each for each in files if not each.stem.endswith("_internals"))


def foreign_assignments(source: str) -> list[tuple[int, str]]:
    """Return line and target of each assignment to an attribute of a foreign object."""
    tree = parse(source)
    nodes = list(ast.walk(tree))
    known = _declared(tree, nodes) | _idioms(nodes)
    found = []
    for inside, made, whole in _scopes(tree, nodes):
        for target in _targets(inside):
            base = target.value
            is_own = _makes(base) or (isinstance(base, ast.Name) and base.id in (*_OWN, *made))
            if not is_own and _root(base) not in whole and target.attr not in known:
                found.append((target.lineno, ast.unparse(target)))
    return sorted(found)


def _idioms(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the attributes that imported libraries of the module have set by assignment."""
    imported: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return {name for library in imported for name in IDIOMS.get(library, ())}


def _root(value: ast.expr) -> str:
    """Return the name that a chain of attributes begins with; empty without one."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _declared(tree: ast.Module, nodes: Sequence[ast.AST]) -> set[str]:
    """Return the attributes that classes of the module declare.

    They are declared in their bodies, by ``self.name = ...``, or as the fields of a structure of ctypes.
    Callbacks are left out: one that is set after the construction of its object is found by no reader.
    """
    names: set[str] = set()
    callable_types = _callable_types(tree)
    callbacks: set[str] = set()
    for each in nodes:
        if not isinstance(each, ast.ClassDef):
            continue
        for statement in each.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                names.add(statement.target.id)
                if _is_callable(statement.annotation, callable_types):
                    callbacks.add(statement.target.id)
            elif isinstance(statement, ast.Assign):
                assigned = {target.id for target in statement.targets if isinstance(target, ast.Name)}
                names.update(assigned)
                if "_fields_" in assigned and isinstance(statement.value, ast.List | ast.Tuple):
                    pairs = (pair.elts for pair in statement.value.elts if isinstance(pair, ast.Tuple))
                    names.update(str(name.value) for name, *_ in pairs if isinstance(name, ast.Constant))
        for target in _targets(ast.walk(each)):
            if isinstance(target.value, ast.Name) and target.value.id in _OWN:
                names.add(target.attr)
        callbacks |= _own_callbacks(each, callable_types)
    return names - callbacks


def _callable_types(tree: ast.Module) -> set[str]:
    """Return the names that the module uses for types of callables.

    An imported name counts by the custom of its name, ``OnAnswer``: its definition is in another module.
    """
    names = {"Callable"}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_callable(node.value, names):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.name for alias in node.names if re.match(r"On[A-Z]", alias.name))
    return names


def _is_callable(annotation: ast.expr, callable_types: set[str]) -> bool:
    """Return whether a type is a callable, or None and a callable."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in callable_types
        case ast.Subscript(value=generic):
            return _is_callable(generic, callable_types)
        case ast.BinOp(left=left, right=right):
            return _is_callable(left, callable_types) or _is_callable(right, callable_types)
    return False


def _own_callbacks(owner: ast.ClassDef, callable_types: set[str]) -> set[str]:
    """Return the attributes of a class that are annotated as callables, or filled from such arguments."""
    found: set[str] = set()
    for method in ast.walk(owner):
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = (*method.args.args, *method.args.kwonlyargs)
        given = {
            each.arg
            for each in arguments
            if each.annotation and _is_callable(each.annotation, callable_types)
        }
        for node in _within(method):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                if _is_callable(node.annotation, callable_types):
                    found.add(node.target.attr)
            elif isinstance(node, ast.Assign):
                for name, value in _pairs(node):
                    if isinstance(value, ast.Name) and value.id in given:
                        found.add(name)
    return found


def _pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield each attribute that an assignment sets, with its value."""
    for target in node.targets:
        if isinstance(target, ast.Attribute):
            yield target.attr, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            yield from ((each.attr, value) for each, value in pairs if isinstance(each, ast.Attribute))


def _scopes(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[tuple[list[ast.AST], set[str], set[str]]]:
    """Yield the nodes of the module and of each function, with the names of its new objects, and of those
    made whole.
    """
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    for scope in (tree, *functions):
        inside = _within(scope)
        yield inside, _bound(inside, _makes), _bound(inside, _makes_whole)


def _bound(inside: Sequence[ast.AST], makes: Callable[[ast.expr | None], bool]) -> set[str]:
    """Return the names that a function binds to objects that it ``makes``, and to nothing else."""
    made: set[str] = set()
    other: set[str] = set()
    for node in inside:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            (made if makes(node.value) else other).update(names)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.NamedExpr):
            other.update(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
    return made - other


def _makes(value: ast.expr | None) -> bool:
    """Return whether an expression makes an object.

    It does as the call of a class, of a second constructor of a class (``Frame.from_array``,
    ``Codec.create``), or of ``copy.copy``.
    """
    if not isinstance(value, ast.Call):
        return False
    owner, _, name = ast.unparse(value.func).rpartition(".")
    if name == "create" or name.startswith("from_"):
        owner = owner.rpartition(".")[2]
        return owner.lstrip("_")[:1].isupper() and not owner.isupper()
    return name.lstrip("_")[:1].isupper() or name in ("copy", "deepcopy")


def _makes_whole(value: ast.expr | None) -> bool:
    """Return whether an expression makes an object with all its parts.

    It does as the call of a class without arguments, or of ``copy.deepcopy``.
    """
    if not isinstance(value, ast.Call) or not _makes(value):
        return False
    return not (value.args or value.keywords) or ast.unparse(value.func).endswith("deepcopy")


def _within(scope: ast.AST) -> list[ast.AST]:
    """Return the nodes of a scope without those of functions inside of it."""
    found, open_nodes = list[ast.AST](), [scope]
    while open_nodes:
        for child in ast.iter_child_nodes(open_nodes.pop()):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                found.append(child)
                open_nodes.append(child)
    return found


def _targets(nodes: Iterable[ast.AST]) -> Iterator[ast.Attribute]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def main() -> int:
    """Print the findings; return 1 when there are any."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for path in product_files()
        for line, target in foreign_assignments(path.read_text(encoding="utf-8"))
    ]
    print(*found, f"assignments to attributes of foreign objects: {len(found)}", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
