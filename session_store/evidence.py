"""Signed, hash-chained evidence of a session: disclosures, consents, and makers of replies.

An entry is an event of the session (``Kind.EVIDENCE``), written after the event that it covers. It has the
digest of that event, the hash of the entry before it, and a signature (Ed25519) over its own hash. Events of
``EVIDENT`` are covered: disclosures, consents, states of a recording, listening operators, tiers, failovers,
and replies, whose payload has the release, the deployment, the engines and the digest of the prompt that made
them (``core.provenance``).

    hash = SHA-256(canonical JSON of {session, event_us, of, kind, digest, number, previous, signer})

A changed, exchanged or removed event, and a removed or inserted entry, break the chain. Entries removed from
its end do not; the number of the newest entry, kept elsewhere (an export, a log), shows that. The chain is
deleted with its session.

Crash between an event and its entry: the next process that opens the session writes the entry
(``EvidenceChain.catch_up``). A process that has lost the session writes neither. Signing takes 0.1 ms.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from parley.core.errors import ConfigError
from parley.core.provenance import Provenance, canonical_json
from parley.runtime.encryption_keys import decoded_key
from parley.session_store.events import Draft, Event, Kind

EVIDENCE_KEY_ENV = "PARLEY_EVIDENCE_KEY"
FIRST = "0" * 64
EVIDENT = frozenset(
    {
        *(Kind.DISCLOSED, Kind.CONSENT, Kind.RECORDING, Kind.LISTENED, Kind.TIER, Kind.FAILOVER),
        Kind.BOT_TURN,
    }
)
# Kinds that a verification reads.
READ = (*sorted(EVIDENT), Kind.EVIDENCE)
_SIGNED = ("of", "kind", "digest", "number", "previous", "signer")


class EvidenceSigner:
    """Key that signs the evidence of a deployment.

    Args:
        seed: 32 bytes, the private key of Ed25519.

    Attributes:
        public_key: by which others verify, in hexadecimal digits.
    """

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._key.public_key().public_bytes_raw().hex()

    @classmethod
    def from_environment(cls) -> "EvidenceSigner":
        """Return the key of the environment.

        Raises:
            ConfigError: there is none, or it is not 32 bytes in base64.
        """
        given = os.environ.get(EVIDENCE_KEY_ENV, "").strip()
        if not given:
            raise ConfigError(
                f"privacy.evidence: set {EVIDENCE_KEY_ENV} to a key of 32 bytes in base64 "
                "(openssl rand -base64 32)"
            )
        return cls(decoded_key(given, EVIDENCE_KEY_ENV))

    def sign(self, content: bytes) -> str:
        """Return the signature of a content in base64."""
        return base64.b64encode(self._key.sign(content)).decode()


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """Signer of the sessions of a process, and the maker of their replies.

    Attributes:
        signer: the key.
        made_by: maker of the replies.
    """

    signer: EvidenceSigner
    made_by: Provenance


class EvidenceChain:
    """Chain of one open session.

    Args:
        session_id: of the session.
        source: of the process.
        head: newest entry of the session; None without any.

    Attributes:
        made_by: maker of the replies.
        covered_seq: newest event that has an entry; 0 without any.
    """

    def __init__(self, session_id: str, source: EvidenceSource, head: Event | None) -> None:
        self._session_id, self._signer = session_id, source.signer
        self.made_by = source.made_by
        self._number = 0 if head is None else _whole(head, "number")
        self._previous = FIRST if head is None else entry_hash(session_id, head).hex()
        self.covered_seq = 0 if head is None else _whole(head, "of")

    def entries(self, events: Iterable[Event]) -> list[Draft]:
        """Return the entries for events that were committed, in order; those of other kinds have none."""
        return [
            self._entry(event) for event in events if event.kind in EVIDENT and event.seq > self.covered_seq
        ]

    def _entry(self, event: Event) -> Draft:
        self._number += 1
        payload: dict[str, Any] = {
            "of": event.seq,
            "kind": event.kind.value,
            "digest": event_digest(event),
            "number": self._number,
            "previous": self._previous,
            "signer": self._signer.public_key,
        }
        content = _hash(self._session_id, event.event_us, payload)
        payload["signature"] = self._signer.sign(content)
        self._previous, self.covered_seq = content.hex(), event.seq
        key = f"evidence.{event.seq}"
        return Draft(Kind.EVIDENCE, payload, event.event_us, event.arrival_us, "system", key=key)


def event_digest(event: Event) -> str:
    """Return the SHA-256 of an event, whichever database it comes from, in hexadecimal digits."""
    # As a database returns it: lists for tuples, text for the names of all fields, and without the version.
    payload = json.loads(json.dumps({name: value for name, value in event.payload.items() if name != "v"}))
    facts = {
        "seq": event.seq,
        "kind": event.kind.value,
        "event_us": event.event_us,
        "source": event.source,
        "speaker": event.speaker,
        "key": event.key,
        "payload": payload,
    }
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def entry_hash(session_id: str, entry: Event) -> bytes:
    """Return the hash of an entry, which the next one names and the signature covers."""
    return _hash(session_id, entry.event_us, entry.payload)


def _hash(session_id: str, event_us: int, payload: Mapping[str, Any]) -> bytes:
    facts = {name: payload.get(name) for name in _SIGNED}
    content = canonical_json({"session": session_id, "event_us": event_us, **facts})
    return hashlib.sha256(content.encode()).digest()


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification.

    Attributes:
        entries: number of entries.
        signers: public keys that signed them, the oldest first.
        problems: what does not hold, in words; empty when all does.
    """

    entries: int
    signers: tuple[str, ...]
    problems: tuple[str, ...]


def verify(session_id: str, events: Sequence[Event], *, trusted: str | None = None) -> Verified:
    """Verify the evidence of a session.

    Args:
        session_id: of the session.
        events: its events of ``READ``, in the order of commit.
        trusted: public key that must have signed every entry; None accepts those that the entries name.
    """
    known = {event.seq: event for event in events if event.kind in EVIDENT}
    entries = [event for event in events if event.kind is Kind.EVIDENCE]
    problems: list[str] = []
    previous, covered = FIRST, set[int]()
    for number, entry in enumerate(entries, start=1):
        problems += _problems_of(session_id, number, entry, previous, known, trusted)
        previous = entry_hash(session_id, entry).hex()
        covered.add(_seq(entry))
    # The entries of later events are written when the session is opened next.
    last = max(covered, default=0)
    problems += [
        f"event {seq} ({event.kind.value}) has no entry"
        for seq, event in known.items()
        if seq < last and seq not in covered
    ]
    signers = dict.fromkeys(str(entry.payload.get("signer")) for entry in entries)
    return Verified(len(entries), tuple(signers), tuple(problems))


def _problems_of(
    session_id: str,
    number: int,
    entry: Event,
    previous: str,
    known: Mapping[int, Event],
    trusted: str | None,
) -> list[str]:
    payload, found = entry.payload, []
    covered = known.get(_seq(entry))
    if payload.get("number") != number:
        found.append(f"entry {number}: its number is {payload.get('number')}")
    if payload.get("previous") != previous:
        found.append(f"entry {number}: the entry before it is another one")
    if covered is None:
        found.append(f"entry {number}: its event {_seq(entry)} is missing")
    elif event_digest(covered) != payload.get("digest") or covered.kind.value != payload.get("kind"):
        found.append(f"entry {number}: its event {_seq(entry)} ({covered.kind.value}) was changed")
    if trusted is not None and payload.get("signer") != trusted:
        found.append(f"entry {number}: signed by another key")
    if not _is_signed(session_id, entry):
        found.append(f"entry {number}: its signature does not hold")
    return found


def _seq(entry: Event) -> int:
    return _whole(entry, "of")


def _whole(entry: Event, name: str) -> int:
    """Return a number of an entry; 0 where the database was changed and has none."""
    value = entry.payload.get(name)
    return value if type(value) is int else 0


def _is_signed(session_id: str, entry: Event) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(entry.payload.get("signer"))))
        signature = base64.b64decode(str(entry.payload.get("signature")), validate=True)
        key.verify(signature, entry_hash(session_id, entry))
    except (ValueError, InvalidSignature):
        return False
    return True
