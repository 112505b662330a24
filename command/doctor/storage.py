"""Check of the session store: reachable, readable, and of this release. Nothing in it is changed."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parley.command.doctor.results import CheckResult, good, warn
from parley.configs.deployment import Deployment
from parley.session_store.database import UnpreparedStoreError
from parley.session_store.store import SessionReader

SLOW_MS = 100


async def check_store(deployment: Deployment) -> Sequence[CheckResult]:
    """Open the store to read, and read from it."""
    settings = deployment.remembering.store
    kind = settings.address().get_backend_name()
    try:
        reader = await SessionReader.open(settings)
    except UnpreparedStoreError as error:
        return [
            warn(f"{kind}: {error}", "the first start of a server prepares it; start one, and check again")
        ]
    try:
        begun_s = time.monotonic()
        found = await reader.sessions(limit=1)
        took_ms = round((time.monotonic() - begun_s) * 1000)
    finally:
        await reader.close()
    text = f"{kind}: answers in {took_ms} ms, of this release, {'with' if found else 'without'} sessions"
    if took_ms > SLOW_MS:
        return [warn(text, "callers wait for the store in every turn: move it closer")]
    return [good(text)]


def folders_of(deployment: Deployment) -> Mapping[str, Path]:
    """Return the folders into which a server of a deployment writes."""
    folders = {"data": deployment.operations.data_dir}
    address = deployment.remembering.store.address()
    if address.get_backend_name() == "sqlite" and address.database:
        folders["sessions"] = Path(address.database).parent
    if deployment.recording.enabled:
        folders["recordings"] = deployment.recording.folder
    return folders
