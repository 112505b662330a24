"""Checks of the folders and files that a deployment names; nothing of them is changed."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parley.core.errors import ConfigError

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

STORE = "remembering.store.url (or PARLEY_STORE_URL)"


def checks_of_files(deployment: "Deployment") -> Iterator[Callable[[], object]]:
    """Yield the checks of a deployment's folders and files; each raises ConfigError for a problem."""
    from parley.pipelines.engines.document_search import checks_of_documents

    operations, recording = deployment.operations, deployment.recording
    yield partial(_check_store, deployment)
    yield partial(check_written, operations.data_dir, "operations.data_dir")
    if recording.enabled:
        yield partial(check_written, recording.folder, "recording.folder")
    yield partial(_check_presets, operations.presets_dir)
    yield from checks_of_documents(deployment)


def check_written(folder: Path, setting: str) -> None:
    """Check that files can be written into a folder, now or once it has been created.

    Raises:
        ConfigError: they cannot.
    """
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise ConfigError(f"{setting}: {existing} is not a folder")
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot write into {existing}: {error.strerror}") from error


def _check_store(deployment: "Deployment") -> None:
    try:
        address = deployment.remembering.store.address()
    except ConfigError as error:
        raise ConfigError(f"{STORE}: {error}") from error
    if address.get_backend_name() == "sqlite" and address.database:
        check_written(Path(address.database).parent, STORE)


def _check_presets(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"operations.presets_dir: there is no folder {str(folder)!r}")
