"""The segments that were really fed to a model, and a digest of each: what may be built upon, and what not.

A segment is a run of tokens with one meaning (a message, what was generated, the mark of an interruption);
images and sound are in it by the digest of their bytes. Its digest is of everything from the beginning of the
context on:

    d_i = SHA-256(d_{i-1} || count || token ids || media digest)
    d_0 = SHA-256(of the ``Scope``: whose it is, which model reads it, and how)

so that two contexts have the same digest only when a model has read the same in both. Generated tokens are
segments like any other: an answer that was cut is not what was written down of it, and a text is not its
tokens. Whoever wants to go on names the digest that they go on from: equal, append; an earlier one, crop;
anything else, refuse. Pure.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

# An answer is cut to what was heard once, and again where that is corrected.
MOST_CUTS = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """What has to be the same for two contexts to be one. Fields are delimited by their lengths.

    Attributes:
        salt: of the tenant: who has another one shares nothing, whatever they say.
        session: of the conversation; empty only for a prefix that is declared public.
        model: and its revision, weights, adapters.
        template: digest of the chat template and tokenizer.
        voice: digest of a reference voice; empty without one.
        layout: of the cache: dtype, attention, window.
    """

    salt: str
    session: str
    model: str
    template: str
    voice: str = ""
    layout: str = ""

    @property
    def root(self) -> str:
        """d_0."""
        fields = (self.salt, self.session, self.model, self.template, self.voice, self.layout)
        whole = b"".join(len(field.encode()).to_bytes(8) + field.encode() for field in fields)
        return hashlib.sha256(whole).hexdigest()


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that was fed.

    Attributes:
        token_ids: in order.
        digest: of everything up to its end.
        end_tokens: how many tokens there are up to its end.
        media: digest of the bytes of images and sound in it; empty without any.
        cut_from: digests of the longer segments that it is the beginning of.
    """

    token_ids: tuple[int, ...]
    digest: str
    end_tokens: int
    media: str = ""
    cut_from: tuple[str, ...] = ()

    def begins(self, digest: str) -> bool:
        """Whether it is the segment with this digest, or the beginning of it."""
        return digest == self.digest or digest in self.cut_from


@dataclass(frozen=True, slots=True)
class CacheHandle:
    """What a worker said that it kept of a conversation. A condition for it, and never a fact about it.

    Attributes:
        worker: that said so.
        incarnation: of its process.
        digest: of the segments that it really fed to its model, generated ones included.
        kv_tokens: of them.
    """

    worker: str
    incarnation: str
    digest: str
    kv_tokens: int


def extended(digest: str, token_ids: Sequence[int], media: str = "") -> str:
    """d_i of d_{i-1} and a segment."""
    whole = hashlib.sha256(bytes.fromhex(digest))
    whole.update(struct.pack(f"<Q{len(token_ids)}q", len(token_ids), *token_ids))
    whole.update(len(media.encode()).to_bytes(8) + media.encode())
    return whole.hexdigest()


class Fed:
    """What one context has read.

    Args:
        scope: of it.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._root = scope.root
        self._segments: list[Segment] = []

    @property
    def segments(self) -> tuple[Segment, ...]:
        """In order."""
        return tuple(self._segments)

    @property
    def digest(self) -> str:
        """Of everything."""
        return self._segments[-1].digest if self._segments else self._root

    @property
    def tokens(self) -> int:
        """How many there are."""
        return self._segments[-1].end_tokens if self._segments else 0

    @property
    def token_ids(self) -> list[int]:
        """All of them."""
        return [token for segment in self._segments for token in segment.token_ids]

    @property
    def chain(self) -> tuple[tuple[str, int], ...]:
        """Digest and end of each segment, the oldest first."""
        return tuple((segment.digest, segment.end_tokens) for segment in self._segments)

    def append(self, token_ids: Sequence[int], media: str = "") -> Segment:
        """The model has read these."""
        digest = extended(self.digest, token_ids, media)
        segment = Segment(tuple(token_ids), digest, self.tokens + len(token_ids), media)
        self._segments.append(segment)
        return segment

    def ends_at(self, digest: str) -> int | None:
        """How many tokens the beginning with this digest has; None: there is no such beginning."""
        if digest == self._root:
            return 0
        return next((each.end_tokens for each in self._segments if each.digest == digest), None)

    def crop(self, tokens: int) -> None:
        """Only so many were kept. A segment that is cut becomes another one, with a digest of its own.

        Raises:
            ValueError: there are fewer, or the cut is inside of a segment with media, which has no parts.
        """
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"{tokens} of {self.tokens} tokens cannot be kept")
        while self._segments and self.tokens > tokens:
            cut = self._segments.pop()
            kept = tokens - self.tokens
            if kept > 0:
                if cut.media:
                    self._segments.append(cut)
                    raise ValueError("a segment with images or sound cannot be cut")
                part = self.append(cut.token_ids[:kept])
                known = (*cut.cut_from, cut.digest)[-MOST_CUTS:]
                self._segments[-1] = replace(part, cut_from=known)
