"""Requests of chat completions that come again with the same ``Idempotency-Key``.

A client that has lost an answer sends its request again; OpenAI's own clients do so by themselves. The first
answer is returned then, and while it is being made the repetition is refused. A request that failed may be
made again, in the session that it has begun. Answers are held in memory, in this process, up to a number and
a length: a repetition after that, or at another process, runs again. In a session that it names its turn is
still answered once, because the session has the key too.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from parley.core.bounded_dict import BoundedDict
from parley.protocols.openai_chat import Completion, CompletionAnswer
from parley.protocols.openai_http import OpenAiHttpError

MOST_REQUESTS, MOST_CHARS = 2_000, 8_000_000


@dataclass(frozen=True, slots=True)
class FinishedCompletion:
    """Answer to a request, to be returned again.

    Attributes:
        session_id: of the session in which it is.
        completion: with the id that it had.
        answer: the whole of it.
        headers: by which its client goes on: the next token, and the cookie of the owner of its session.
    """

    session_id: str
    completion: Completion
    answer: CompletionAnswer
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def chars(self) -> int:
        """Length, for the bound of all."""
        return len(self.answer.text) + sum(len(call.arguments) for call in self.answer.calls)


class KeyedRequest:
    """Request with a key.

    Args:
        digest: of its body.

    Attributes:
        digest: as given.
        session_id: session that it has begun; empty before.
        finished: its answer; None while it runs, and after a failure.
        runs: true while it runs.
    """

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.session_id = ""
        self.finished: FinishedCompletion | None = None
        self.runs = False

    def is_of(self, session_id: str) -> bool:
        """Return whether it is answered in a session."""
        finished = self.finished
        return session_id in (self.session_id, "" if finished is None else finished.session_id)

    def begin(self) -> None:
        """Run, for the first time or after a failure."""
        self.runs = True

    def keep_session(self, session_id: str) -> None:
        """Note the session in which it is answered, also the next time."""
        self.session_id = session_id

    def finish(self, finished: FinishedCompletion) -> None:
        """Note the answer."""
        self.finished = finished

    def end(self) -> None:
        """End the run, with an answer or without one."""
        self.runs = False


class RepeatedRequests:
    """Requests with a key of one process.

    Args:
        most: number that is remembered; the oldest ones are forgotten first.
        most_chars: length of their answers together.
    """

    def __init__(self, most: int = MOST_REQUESTS, most_chars: int = MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._requests: BoundedDict[tuple[Hashable, ...], KeyedRequest] = BoundedDict(most)

    def take(self, key: tuple[Hashable, ...], digest: bytes) -> KeyedRequest:
        """Return the request of a key: one with its answer, or one that runs from now on.

        Args:
            key: of the request, with the session that it names and everything that distinguishes its client.
            digest: of the body.

        Raises:
            OpenAiHttpError: 409, it runs; 400, the key belongs to another body.
        """
        known = self._requests.get(key)
        if known is not None and known.digest != digest:
            raise OpenAiHttpError(
                "This Idempotency-Key was used for another request; use a new one.",
                param="Idempotency-Key",
                code="idempotency_key_reused",
            )
        if known is not None and known.runs:
            raise OpenAiHttpError(
                "A request with this Idempotency-Key is in progress; wait for its answer.",
                status=409,
                param="Idempotency-Key",
                code="idempotency_key_in_progress",
            )
        request = known or KeyedRequest(digest)
        self._requests[key] = request
        if request.finished is None:
            request.begin()
        self._shorten()
        return request

    def forget(self, session_id: str) -> int:
        """Drop the requests of a session that was deleted, with their answers; return their number.

        One that runs ends by itself, and is dropped too. Its key has the session that it names.
        """
        gone = [
            key for key, request in self._requests.items() if request.is_of(session_id) or session_id in key
        ]
        for key in gone:
            del self._requests[key]
        return len(gone)

    def _shorten(self) -> None:
        chars = 0
        for key, request in reversed(list(self._requests.items())):
            chars += 0 if request.finished is None else request.finished.chars
            if chars > self._most_chars and request.finished is not None:
                del self._requests[key]
