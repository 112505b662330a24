"""Swappable parts by name, resolved on use.

A row is ``"package.module:Attribute"``, so importing a registry loads no engine and no weights. An unknown
name raises a ``ConfigError`` that lists the known ones. A row whose optional package is missing raises a
``ConfigError`` that names the extra to install.

Other packages add rows without a change here. An installed package does so by an entry point of the group
``parley.STAGE`` (``parley.stt_engine``). Any importable module can be given by its
``package.module:Attribute`` in place of a name. The rows of this table come first, so that a package cannot
replace one of them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from parley.core.errors import ConfigError, one_line
from parley.core.installation import pip_command

T = TypeVar("T")
# Prefix of the groups of entry points by which packages add rows.
GROUP = "parley"


def is_target(name: str) -> bool:
    """Return whether a name is a ``package.module:Attribute``, which no row of a table is."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def factory_text(factory: object) -> str:
    """Return the ``package.module:Attribute`` of a class or function, or a text for an instance."""
    if hasattr(factory, "__qualname__"):
        return f"{factory.__module__}:{factory.__qualname__}"
    return f"an instance of {type(factory).__module__}:{type(factory).__qualname__}"


@dataclass(frozen=True)
class Row:
    """Swappable part.

    Attributes:
        target: ``"package.module:Attribute"`` of a class or factory.
        summary: one line that helps to choose.
        extra: optional dependency group of pyproject.toml that it needs, or None.
        env: environment variables that must be set, each holding a secret.
    """

    target: str
    summary: str = ""
    extra: str | None = None
    env: tuple[str, ...] = ()


class Registry(Generic[T]):
    """Mapping of names to the factories of one stage.

    Args:
        stage: kind of the rows, for messages (``"stt"``).
        rows: name to target or Row.
        is_extensible: other packages may add rows.
    """

    def __init__(self, stage: str, rows: Mapping[str, str | Row], *, is_extensible: bool = True) -> None:
        self.stage = stage
        self._is_extensible = is_extensible
        self._rows = {name: row if isinstance(row, Row) else Row(row) for name, row in rows.items()}

    def names(self) -> tuple[str, ...]:
        """Return the known names, sorted: those of the table and those that installed packages add."""
        return tuple(sorted({*self._rows, *(entry.name for entry in self._installed())}))

    def own_names(self) -> tuple[str, ...]:
        """Return the names of the table, sorted, whatever is installed."""
        return tuple(sorted(self._rows))

    def _installed(self) -> tuple[EntryPoint, ...]:
        if not self._is_extensible:
            return ()
        return tuple(entry_points(group=f"{GROUP}.{self.stage.replace(' ', '_')}"))

    def row(self, name: str) -> Row:
        """Return the row of a name.

        Raises:
            ConfigError: unknown name; lists the known ones.
        """
        if (row := self._rows.get(name)) is not None:
            return row
        if self._is_extensible and is_target(name):
            return Row(name, "of a module of the deployment's own")
        for entry in self._installed():
            if entry.name == name:
                return Row(entry.value, f"of the package {entry.dist.name}" if entry.dist else "")
        known = self.names()
        if not known and self._is_extensible:
            raise ConfigError(
                f"unknown {self.stage} {name!r}: no package registers one; name your own as "
                "package.module:Class"
            )
        raise ConfigError(f"unknown {self.stage} {name!r}", known=known)

    def factory(self, name: str) -> Callable[..., T]:
        """Import and return the factory of a name.

        Raises:
            ConfigError: unknown name, a package of the row's extra is not installed, the attribute is no
                factory, or another package's module cannot be imported or lacks the attribute.
        """
        row = self.row(name)
        module_name, _, attribute = row.target.partition(":")
        try:
            found = getattr(import_module(module_name), attribute)
        except Exception as error:
            if row.extra is not None and isinstance(error, ImportError):
                raise ConfigError(
                    f"{self.stage} {name!r} needs the extra {row.extra!r}: {pip_command(row.extra)} ({error})"
                ) from error
            if name in self._rows:
                raise
            # Another package's module may raise anything.
            raise ConfigError(f"{self.stage} {name!r} cannot be imported: {one_line(error)}") from error
        if not callable(found):
            raise ConfigError(
                f"{self.stage} {name!r}: {row.target} is neither a class nor a function, but of the type "
                f"{type(found).__name__}"
            )
        return cast(Callable[..., T], found)

    def create(self, name: str, *args: Any, **kwargs: Any) -> T:
        """Import the factory of a name and call it.

        Raises:
            ConfigError: as ``factory`` does.
        """
        return self.factory(name)(*args, **kwargs)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self._rows
            or (self._is_extensible and is_target(name))
            or any(entry.name == name for entry in self._installed())
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
