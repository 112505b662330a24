"""Lease of a place in a bucket: one run at a time holds it, on whatever machine.

The lease is an object that is written with conditions only, so that two runs cannot both take it. Its holder
writes it anew every ``RENEW_S``. Another run takes it over when the holder has ended (it released the lease,
or was a process of this machine that is gone), or when it was not renewed for ``LEASE_S``, on the other's own
clock. A holder that was suspended for so long notices at its next renewal; the conditions on its outputs hold
until then (``s3.destination``).
"""

import json
import os
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from loguru import logger

from parley.core.errors import ConfigError
from parley.runtime.object_store import (
    Expected,
    ObjectChangedError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
)

LEASE_S, RENEW_S = 60.0, 15.0
LOOK_S = 2.0
_MOST_BYTES = 10_000


class BucketLease:
    """Lease that this process holds from ``__enter__`` to ``__exit__``, with a thread that renews it.

    Args:
        store: bucket.
        name: of the object.
        place: what is held, for messages.
        lease_s: time without renewal after which another run takes it over.
        renew_s: interval of the renewals.

    Attributes:
        is_lost: another run has taken it over.
    """

    def __init__(
        self, store: ObjectStore, name: str, place: str, *, lease_s: float = LEASE_S, renew_s: float = RENEW_S
    ) -> None:
        self._store, self._name, self._place = store, name, place
        self._lease_s, self._renew_s = lease_s, renew_s
        self._facts: dict[str, Any] = {"run": uuid.uuid4().hex, "renewals": 0} | _this_process()
        self._tag = ""
        self.is_lost = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Take the lease.

        Raises:
            ConfigError: another run holds it.
            ObjectStoreError: the bucket does not answer, or refuses.
        """
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Release it, so that the next run need not wait."""
        self._over.set()
        # A renewal under way changes the tag; a daemon, so that a bucket that is away holds up no end.
        self._thread.join(self._renew_s)
        if not self.is_lost and not self._thread.is_alive():
            # The next run waits for ``LEASE_S`` without it.
            with suppress(ObjectStoreError):
                self._write({**self._facts, "released": True})

    def _take(self) -> None:
        seen, since_s = "", time.monotonic()
        while True:
            holder, tag = self._holder()
            has_ended = not tag or _has_ended(holder)
            if tag != seen:
                if seen and not has_ended:
                    raise ConfigError(
                        f"{self._place}: another run is writing there; wait for its end or stop it"
                    )
                seen, since_s = tag, time.monotonic()
            if has_ended or time.monotonic() - since_s >= self._lease_s:
                self._tag = tag
                try:
                    return self._write(self._facts)
                except ObjectChangedError:
                    # Another run was faster, or an answer was lost; the next look shows which.
                    if self._is_mine():
                        return None
            # A server of objects notifies no one.
            self._over.wait(min(LOOK_S, self._lease_s / 4))

    def _holder(self) -> tuple[dict[str, Any], str]:
        """Return the facts of the present holder and the tag of the object; empty without one."""
        found = self._store.facts(self._name)
        if found is None:
            return {}, ""
        with suppress(ObjectMissingError, ObjectChangedError, ValueError):
            holder = json.loads(self._store.read(self._name, 0, _MOST_BYTES, tag=found.tag))
            return (holder if isinstance(holder, dict) else {}), found.tag
        return {}, found.tag

    def _write(self, facts: dict[str, Any]) -> None:
        expected = Expected(self._tag or None)
        self._tag = self._store.put(self._name, json.dumps(facts).encode(), expected)

    def _is_mine(self) -> bool:
        holder, tag = self._holder()
        if holder.get("run") != self._facts["run"]:
            return False
        self._tag = tag
        return True

    def _renew(self) -> None:
        while not self._over.wait(self._renew_s):
            self._facts["renewals"] += 1
            try:
                self._write(self._facts)
            except ObjectChangedError:
                if not self._still_mine():
                    self.is_lost = True
                    return
            except ObjectStoreError as error:
                # No other run can take it over meanwhile either.
                logger.warning(f"the lease of {self._place} is not renewed: {error}")

    def _still_mine(self) -> bool:
        """Return False when another run holds it for certain."""
        try:
            return self._is_mine()
        except ObjectStoreError:
            return True


def _this_process() -> dict[str, Any]:
    """Return what identifies this process on its machine until the next boot; empty if not known."""
    with suppress(OSError):
        return {
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "processes": os.readlink("/proc/self/ns/pid"),
            "pid": os.getpid(),
            "started": _start_of(os.getpid()),
        }
    return {}


def _has_ended(holder: dict[str, Any]) -> bool:
    """Return whether a holder has released the lease, or was a process of this machine that is gone."""
    if holder.get("released") is True:
        return True
    own = _this_process()
    is_here = bool(own) and all(holder.get(name) == own[name] for name in ("boot", "processes"))
    pid = holder.get("pid")
    return is_here and isinstance(pid, int) and _start_of(pid) != holder.get("started")


def _start_of(pid: int) -> str:
    """Return when a process was started, in ticks of the machine; empty for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A process that was killed is there until its parent has read its status.
    return "" if fields[0] in ("Z", "X") else fields[19]
