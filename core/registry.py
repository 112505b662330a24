"""Swappable parts by name, resolved on use.

A row is ``"package.module:Attribute"``: importing a registry loads no engine and no weights. Asking for an
unknown name is a ``ConfigError`` that lists the known ones; a row whose optional package is missing is a
``ConfigError`` that names the extra to install.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from core.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One swappable part.

    Attributes:
        target: ``"package.module:Attribute"`` of a class or factory.
        summary: one line for people who choose.
        extra: the optional dependency group of pyproject.toml that it needs, or None.
        env: the environment variables that must be set, each holding a secret.
    """

    target: str
    summary: str = ""
    extra: str | None = None
    env: tuple[str, ...] = ()


class Registry(Generic[T]):
    """Names to factories of one stage.

    Args:
        stage: what the rows are, for messages (``"stt"``).
        rows: name to target or Row.
    """

    def __init__(self, stage: str, rows: Mapping[str, str | Row]) -> None:
        self.stage = stage
        self._rows = {name: row if isinstance(row, Row) else Row(row) for name, row in rows.items()}

    def names(self) -> tuple[str, ...]:
        """Known names, sorted."""
        return tuple(sorted(self._rows))

    def row(self, name: str) -> Row:
        """The row of a name.

        Raises:
            ConfigError: unknown name; lists the known ones.
        """
        try:
            return self._rows[name]
        except KeyError:
            raise ConfigError(f"unknown {self.stage} {name!r}", known=self.names()) from None

    def factory(self, name: str) -> Callable[..., T]:
        """Import and return the factory of a name.

        Raises:
            ConfigError: unknown name, or a package of the row's extra is not installed.
        """
        row = self.row(name)
        module_name, _, attribute = row.target.partition(":")
        try:
            module = import_module(module_name)
        except ImportError as error:
            if row.extra is None:
                raise
            raise ConfigError(
                f"{self.stage} {name!r} needs the extra {row.extra!r}: "
                f"pip install -e '.[{row.extra}]' ({error})"
            ) from error
        return cast(Callable[..., T], getattr(module, attribute))

    def create(self, name: str, *args: Any, **kwargs: Any) -> T:
        """Import the factory of a name and call it.

        Raises:
            ConfigError: see ``factory``.
        """
        return self.factory(name)(*args, **kwargs)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
