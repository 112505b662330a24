"""Find uses of private members of libraries in product code, outside the modules made for them.

Such a module is a folder's door: ``<folder>/*_internals.py``, at most one in each top-level folder.
Everywhere else these are findings, one line each, and the exit status is 1:

* ``other._name``, where no class or function of the same module defines ``_name``;
* ``self._name``, ``super()._name`` and ``def _name`` in a subclass of a library's class that has ``_name``;
* the same by string (``getattr(other, "_name")``, ``vars(other)["_Class__name"]``);
* a private argument of a call, an import of a private name or module of a library;
* an assignment to an attribute of a library's class or module.

The standard library does not count as a library here. Everything is parsed and nothing is imported. A base
class without available source is reported in a note and not checked. Run by ``make lint``: ``python -m
scripts.check_foreign_members``.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

from scripts.syntax import parse

# The import package, whose folders are links to those at the root.
PACKAGE = "parley"
ROOT = Path(__file__).resolve().parents[1]
DOOR = "_internals.py"
SELF = ("self", "cls")
BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
# Documented, in spite of their names.
NAMED_TUPLE = ("_replace", "_asdict", "_fields", "_make", "_field_defaults")
MANGLED = re.compile(r"_[A-Z]\w*?__[a-z]\w*")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__")


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass
class Module:
    """A module of ours or of a library.

    Attributes:
        name: dotted name.
        path: path of its file.
        imports: target of each imported name: a module, and a name in it or "".
        stars: modules from which all names are imported.
        classes: those at the top first.
    """

    name: str
    path: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self.imports[alias.asname or top] = (alias.name if alias.asname else top, "")
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(source)
                    else:
                        self.imports[alias.asname or alias.name] = (source, alias.name)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)

    def _source(self, node: ast.ImportFrom) -> str:
        """Return the module that is imported from, which may be named relative to this one."""
        if not node.level:
            return node.module or ""
        is_package = self.path.endswith("__init__.py")
        parts = self.name.split(".")[: len(self.name.split(".")) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cached_property
    def names(self) -> set[str]:
        """Names that the module gives to anything: functions, classes, variables, attributes of ``self``."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, Function | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                found.add(node.attr)
        return found


class Project:
    """All modules of the product, and those of libraries as far as they are needed.

    Args:
        sources: path in the import package to text.
        own: other modules at the top that are no library.

    Attributes:
        notes: classes that could not be checked.
    """

    def __init__(self, sources: dict[str, str], own: frozenset[str]) -> None:
        self.own = own | {PACKAGE}
        self.notes: set[str] = set()
        self.modules: dict[str, Module] = {}
        for path, text in sources.items():
            name = f"{PACKAGE}/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self.modules[name] = Module(name, path, parse(text))
        self._libraries: dict[str, Module | None] = {}
        self._inherited: dict[tuple[str, str], frozenset[str]] = {}
        self._members: dict[tuple[str, str], frozenset[str] | None] = {}

    def is_foreign(self, module: str) -> bool:
        top = module.partition(".")[0]
        return bool(top) and top not in self.own and top not in sys.stdlib_module_names

    def inherited(self, module: Module, name: str) -> frozenset[str]:
        """Return private members that a class has from libraries, its own left out."""
        key = (module.name, name)
        if key not in self._inherited:
            self._inherited[key] = frozenset()
            found: set[str] = set()
            for base in module.classes[name].bases:
                found |= self._of_base(module, base)
            self._inherited[key] = frozenset(found)
        return self._inherited[key]

    def members(self, module_name: str, path: list[str]) -> frozenset[str] | None:
        """Return private members of a library's class, inherited ones included; None when it is not found."""
        key = (module_name, ".".join(path))
        if key not in self._members:
            # Modules import each other in circles.
            self._members[key] = None
            self._members[key] = self._found(module_name, path)
        return self._members[key]

    def _found(self, module_name: str, path: list[str]) -> frozenset[str] | None:
        module = self._library(module_name)
        if module is None or not path:
            return None
        name, *inner = path
        if name in module.classes:
            # A nested class is found by its own name.
            name = path[-1]
            return self.inherited(module, name) | frozenset(_defined(module.classes[name]))
        if name in module.imports:
            source, theirs = module.imports[name]
            found = self.members(source, [theirs, *inner] if theirs else inner)
            if found is None and theirs and inner:
                return self.members(f"{source}.{theirs}", inner)
            return found
        for source in module.stars:
            # Some packages import hundreds of modules in this way.
            if name in self._text(source) and (found := self.members(source, path)) is not None:
                return found
        return self.members(f"{module_name}.{name}", inner) if inner else None

    def _library(self, name: str) -> Module | None:
        if name not in self._libraries:
            file = _file_of(name) if self.is_foreign(name) else None
            tree = None if file is None else parse(file.read_text(encoding="utf-8"))
            self._libraries[name] = None if tree is None else Module(name, str(file), tree)
        return self._libraries[name]

    @staticmethod
    def _text(module: str) -> str:
        file = _file_of(module)
        return "" if file is None else file.read_text(encoding="utf-8")

    def _of_base(self, module: Module, base: ast.expr) -> frozenset[str]:
        if isinstance(base, ast.Subscript):
            base = base.value
        root, *path = ast.unparse(base).split(".")
        if root in module.classes and not path:
            mine = _defined(module.classes[root]) if self.is_foreign(module.name) else ()
            return self.inherited(module, root) | set(mine)
        if root not in module.imports:
            return frozenset()
        source, name = module.imports[root]
        path = [name, *path] if name else path
        ours = self.modules.get(source)
        if ours is not None and len(path) == 1:
            if path[0] in ours.classes:
                return self.inherited(ours, path[0])
            return self._of_base(ours, ast.Name(path[0])) if path[0] in ours.imports else frozenset()
        if not self.is_foreign(source) or not path:
            return frozenset()
        found = self.members(source, path)
        if found is None and not self.is_foreign(module.name):
            self.notes.add(f"{module.path}: no source of {source}.{'.'.join(path)}, which is not checked")
        return found or frozenset()

    def findings(self) -> list[Finding]:
        """Return all findings, in order."""
        found: list[Finding] = []
        doors: dict[str, str] = {}
        for module in self.modules.values():
            if not is_door(module.path):
                found += _Visit(self, module).found
                continue
            folder = module.path.partition("/")[0]
            if doors.setdefault(folder, module.path) != module.path:
                found.append(Finding(module.path, 1, f"{folder}/ has a door already: {doors[folder]}"))
        return sorted(found)


class _Visit(ast.NodeVisitor):
    def __init__(self, project: Project, module: Module) -> None:
        self.found: list[Finding] = []
        self._project = project
        self._module = module
        self._inherited: list[frozenset[str]] = [frozenset()]
        self.visit(module.tree)

    def _add(self, node: ast.AST, what: str) -> None:
        self.found.append(Finding(self._module.path, getattr(node, "lineno", 1), what))

    def _is_library(self, name: str) -> bool:
        source = self._module.imports.get(name)
        return source is not None and self._project.is_foreign(source[0])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        inherited = self._project.inherited(self._module, node.name)
        self._inherited.append(inherited)
        for each in node.body:
            for name in _names_of(each):
                if name in inherited:
                    self._add(each, f"{node.name} overrides {name} of a library's class")
        self.generic_visit(node)
        self._inherited.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name, of = node.attr, node.value
        root = _root(of)
        if isinstance(node.ctx, (ast.Store, ast.Del)) and root is not None and self._is_library(root):
            self._add(node, f"{ast.unparse(node)} of a library is assigned")
        elif is_private(name):
            if _is_self(of) or _is_super(of):
                if name in self._inherited[-1]:
                    self._add(node, f"{ast.unparse(node)} is private to a library's class")
            elif name not in NAMED_TUPLE and name not in self._module.names and not self._is_standard(root):
                self._add(node, f"{ast.unparse(node)} is private to another module")
        self.generic_visit(node)

    def _is_standard(self, root: str | None) -> bool:
        source = self._module.imports.get(root or "")
        return source is not None and source[0].partition(".")[0] in sys.stdlib_module_names

    def visit_Call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg and is_private(keyword.arg):
                self._add(node, f"{keyword.arg} is a private argument")
        if isinstance(node.func, ast.Name) and node.func.id in BY_NAME and len(node.args) > 1:
            if node.func.id in ("setattr", "delattr"):
                root = _root(node.args[0])
                if root is not None and self._is_library(root):
                    self._add(node, f"{root} of a library is changed")
            self._check_string(node.args[1])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and MANGLED.fullmatch(node.value):
            self._add(node, f"{node.value} is private to another module")

    def _check_string(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return
        name = node.value
        if is_private(name) and not MANGLED.fullmatch(name) and name not in self._module.names:
            self._add(node, f"{name} is private to another module")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "vars":
            self._check_string(node.slice)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level and self._project.is_foreign(node.module):
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            for part in parts:
                if is_private(part):
                    self._add(node, f"{part} of {node.module} is private")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self._project.is_foreign(alias.name) and any(map(is_private, alias.name.split("."))):
                self._add(node, f"{alias.name} is private")


def is_door(path: str) -> bool:
    return path.count("/") == 1 and path.endswith(DOOR)


def used_in(door: Module) -> set[str]:
    """Return private members of libraries that a door uses or overrides."""
    found: set[str] = set()
    for node in ast.walk(door.tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            found |= {
                each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    return {name for name in found if is_private(name)}


def _defined(definition: ast.ClassDef) -> Iterator[str]:
    """Yield private members that a class defines, assigns or takes as an argument of its constructor."""
    for node in _inside(definition.body):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            name = node.attr
            if is_private(name):
                yield f"_{definition.name.lstrip('_')}{name}" if name.startswith("__") else name
    for each in definition.body:
        yield from filter(is_private, _names_of(each))
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            arguments = (*each.args.args, *each.args.kwonlyargs)
            yield from (argument.arg for argument in arguments if is_private(argument.arg))


def _names_of(statement: ast.stmt) -> list[str]:
    """Return the names that a statement in the body of a class defines."""
    if isinstance(statement, Function):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


def _inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes and their descendants, classes left out."""
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            yield node
            yield from _inside(ast.iter_child_nodes(node))


def _file_of(module: str) -> Path | None:
    """Return the source file of a module, which is not imported; None when there is none."""
    places: Iterable[str] | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
        if places is None and count < len(parts):
            return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in SELF


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def product(root: Path = ROOT) -> Project:
    """Return the modules of the import package and those at the root; scripts and tests are left out."""
    # Its folders are links, which rglob does not follow.
    paths = [
        Path(folder, name).relative_to(root / PACKAGE)
        for folder, _, names in os.walk(root / PACKAGE, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]
    at_root = [path.relative_to(root) for path in root.glob("*.py")]
    sources = {path.as_posix(): (root / PACKAGE / path).read_text(encoding="utf-8") for path in paths}
    sources |= {path.as_posix(): (root / path).read_text(encoding="utf-8") for path in at_root}
    own = frozenset([*(path.stem for path in at_root), "tests", "scripts"])
    return Project(dict(sorted(sources.items())), own)


def main() -> int:
    project = product()
    found = project.findings()
    for note in sorted(project.notes):
        print(f"note: {note}")
    for finding in found:
        print(finding)
    if found:
        print(f"{len(found)} private members of libraries are touched outside a folder's *{DOOR}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
