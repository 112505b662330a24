"""Segments that were fed to a model, with a digest of each: the basis for reuse of a context.

A segment is a run of tokens with one meaning (a message, generated text, the mark of an interruption). Images
and sound are in it by the digest of their bytes. Its digest covers everything from the beginning of the
context:

    d_i = SHA-256(d_{i-1} || count || token ids || media digest)
    d_0 = SHA-256(of the ``Scope``: its owner, the model that reads it, and how)

so that two contexts have the same digest only when a model has read the same in both. Generated tokens are
segments like any other: an answer that was cut differs from its transcript, and a text differs from its
tokens. A client that continues names the digest to continue from. If it equals the last one, tokens are
appended; if it equals an earlier one, the context is cropped; otherwise it is refused. Pure.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

# An answer is cut to the part that was heard, and again when that is corrected.
MOST_CUTS = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """Conditions under which two contexts may be the same. Fields are delimited by their lengths.

    Attributes:
        salt: secret of the tenant: tenants with different salts share nothing.
        session: id of the conversation; empty only for a prefix that is declared public.
        model: model with its revision, weights, adapters.
        template: digest of the chat template and tokenizer.
        voice: digest of a reference voice; empty without one.
        layout: layout of the cache: dtype, attention, window.
    """

    salt: str
    session: str
    model: str
    template: str
    voice: str = ""
    layout: str = ""

    @property
    def root(self) -> str:
        """Digest of the scope, d_0."""
        fields = (self.salt, self.session, self.model, self.template, self.voice, self.layout)
        whole = b"".join(len(field.encode()).to_bytes(8) + field.encode() for field in fields)
        return hashlib.sha256(whole).hexdigest()


@dataclass(frozen=True, slots=True)
class Segment:
    """Run of tokens that was fed.

    Attributes:
        token_ids: tokens in order.
        digest: digest of everything up to its end.
        end_tokens: number of tokens up to its end.
        media: digest of the bytes of images and sound in it; empty without any.
        cut_from: digests of the longer segments of which it is the beginning.
    """

    token_ids: tuple[int, ...]
    digest: str
    end_tokens: int
    media: str = ""
    cut_from: tuple[str, ...] = ()

    def begins(self, digest: str) -> bool:
        """Return whether it is the segment with this digest, or the beginning of it."""
        return digest == self.digest or digest in self.cut_from


@dataclass(frozen=True, slots=True)
class CacheHandle:
    """Cache of a conversation as a worker reported it. A condition for the worker, never a fact about it.

    Attributes:
        worker: name of the worker.
        incarnation: id of its process.
        digest: digest of the segments that were fed to its model, generated ones included.
        kv_tokens: number of tokens in them.
    """

    worker: str
    incarnation: str
    digest: str
    kv_tokens: int


def extended(digest: str, token_ids: Sequence[int], media: str = "") -> str:
    """Return d_i for d_{i-1} and a segment."""
    whole = hashlib.sha256(bytes.fromhex(digest))
    whole.update(struct.pack(f"<Q{len(token_ids)}q", len(token_ids), *token_ids))
    whole.update(len(media.encode()).to_bytes(8) + media.encode())
    return whole.hexdigest()


class Fed:
    """Record of the segments that one context has read.

    Args:
        scope: scope of the context.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._root = scope.root
        self._segments: list[Segment] = []

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments in order."""
        return tuple(self._segments)

    @property
    def digest(self) -> str:
        """Digest of all segments."""
        return self._segments[-1].digest if self._segments else self._root

    @property
    def tokens(self) -> int:
        """Number of tokens in all segments."""
        return self._segments[-1].end_tokens if self._segments else 0

    @property
    def token_ids(self) -> list[int]:
        """Tokens of all segments."""
        return [token for segment in self._segments for token in segment.token_ids]

    @property
    def chain(self) -> tuple[tuple[str, int], ...]:
        """Digest and end of each segment, oldest first."""
        return tuple((segment.digest, segment.end_tokens) for segment in self._segments)

    def append(self, token_ids: Sequence[int], media: str = "") -> Segment:
        """Record a segment that the model has read."""
        digest = extended(self.digest, token_ids, media)
        segment = Segment(tuple(token_ids), digest, self.tokens + len(token_ids), media)
        self._segments.append(segment)
        return segment

    def ends_at(self, digest: str) -> int | None:
        """Return the number of tokens up to the place with this digest; None if there is no such place."""
        if digest == self._root:
            return 0
        return next((each.end_tokens for each in self._segments if each.digest == digest), None)

    def crop(self, tokens: int) -> None:
        """Keep only the first ``tokens``. A segment that is cut becomes a new one with its own digest.

        Raises:
            ValueError: there are fewer tokens, or the cut is inside a segment with media, which cannot be
                divided.
        """
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"{tokens} of {self.tokens} tokens cannot be kept")
        while self._segments and self.tokens > tokens:
            cut = self._segments.pop()
            kept = tokens - self.tokens
            if kept > 0:
                if cut.media:
                    self._segments.append(cut)
                    raise ValueError("a segment with images or audio cannot be split")
                part = self.append(cut.token_ids[:kept])
                known = (*cut.cut_from, cut.digest)[-MOST_CUTS:]
                self._segments[-1] = replace(part, cut_from=known)
