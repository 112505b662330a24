"""Tokens of phone calls: each admits one stream of one call, and holds a line for it until then.

Input: calls that were answered. Output: an unguessable token for each, which its stream presents. A call has
one token, however many requests about it arrive while it waits, and none after its stream: a recorded webhook
opens nothing. A call that lost its stream gets another token (``call_links``). A call whose stream never
comes, or that has ended, is removed, and its line is free. A caller who waits in the queue leaves it with a
token.
"""

import secrets
from collections.abc import Callable

from fastapi import HTTPException
from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import AgentError, CapacityError
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.queue import PhoneQueue

# Calls that have had their stream. Beyond this number the oldest are evicted; a network signs no webhook of
# calls that old.
MOST_SPENT = 10_000
# A stream must come within this time after the answer that announced it.
TOKEN_S = 30.0
# Calls that were answered and have no stream yet.
MOST_WAITING = 200


class SpentError(AgentError):
    """A call requests a second stream."""


class StreamTokens:
    """Tokens of one gateway.

    Args:
        calls: starts conversations, and counts promised lines.
        queue: of phone callers who wait for a line; None: they do not.
        clock_s: monotonic.
        token_s: a stream must come within this time after the answer that announced it.

    Attributes:
        token_s: as given.
    """

    def __init__(
        self,
        calls: CallTasks,
        queue: PhoneQueue | None,
        *,
        clock_s: Callable[[], float],
        token_s: float = TOKEN_S,
    ) -> None:
        self.token_s = token_s
        self._calls, self._queue = calls, queue
        self._clock_s = clock_s
        # Each with the time until which the stream may come.
        self._waiting: dict[str, tuple[float, PhoneCall]] = {}
        self._spent: BoundedDict[tuple[str, str], None] = BoundedDict(MOST_SPENT)
        calls.count_promised(self._promised)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, token: object) -> bool:
        return token in self._waiting

    def expect(
        self, call: PhoneCall, *, within_s: float, uses_recogniser: bool, is_again: bool = False
    ) -> str:
        """Return the token for the stream of a call: its present one, or a new one with a promised line.

        Args:
            call: that was answered.
            within_s: time limit for the stream.
            uses_recogniser: true when it uses the recogniser.
            is_again: the stream that the call has had is lost, and it may have another.

        Raises:
            SpentError: it has had its stream.
            CapacityError: there is no line.
        """
        now_s = self._clock_s()
        self._forget_the_late()
        if call.call_sid:
            for token, (_, waiting) in self._waiting.items():
                if _name(waiting) == _name(call):
                    return token
            if _name(call) in self._spent and not is_again:
                raise SpentError("the call has had its stream already")
        if self._queue is not None:
            if self._queue.was_removed(call.call_sid):
                raise CapacityError("an operator removed the caller from the queue", limit=0)
            self._queue.asked(call.call_sid)
        self._calls.check_room(
            promised=len(self._waiting), uses_recogniser=uses_recogniser, ticket=call.call_sid
        )
        if len(self._waiting) >= MOST_WAITING:
            raise CapacityError("too many answered calls have no stream", limit=MOST_WAITING)
        waited_s = self._queue.leave(call.call_sid) if self._queue is not None else None
        if waited_s is not None:
            self._calls.wake()
            logger.info(f"call {call.call_sid[:40]} gets a line after {waited_s:.0f} s in the queue")
        token = secrets.token_urlsafe(32)
        self._waiting[token] = (now_s + within_s, call)
        return token

    def is_expected(self, call: PhoneCall, *, is_first: bool = False) -> bool:
        """Return whether a call was answered already and its stream is still to come.

        Args:
            call: the call.
            is_first: only if that is its first stream.
        """
        self._forget_the_late()
        token = self._token_of(call.call_sid)
        return token is not None and not (is_first and self._waiting[token][1].session)

    def claim(self, token: str, network: str) -> PhoneCall:
        """Return the call of a token, which is used up in any case.

        Raises:
            HTTPException: not a token of this network, or used, or expired.
        """
        until_s, call = self._waiting.get(token, (0.0, None))
        if call is None or call.network != network or until_s <= self._clock_s():
            raise HTTPException(403, "the token is invalid, used or expired")
        del self._waiting[token]
        if call.call_sid:
            self._spent[_name(call)] = None
        return call

    def name(self, token: str, call: PhoneCall) -> bool:
        """Set the id of a call that was placed without one; return whether it still waits."""
        if token not in self._waiting:
            return False
        self._waiting[token] = self._waiting[token][0], call
        return True

    def forget(self, token: str) -> None:
        """Revoke a token."""
        self._waiting.pop(token, None)

    def ended(self, call_sid: str) -> None:
        """Revoke the token of a call that has ended."""
        if (token := self._token_of(call_sid)) is not None:
            del self._waiting[token]

    def answered(self, call_sid: str, within_s: float) -> None:
        """Restart the time limit for the stream of a call that is answered now."""
        if (token := self._token_of(call_sid)) is not None:
            self._waiting[token] = self._clock_s() + within_s, self._waiting[token][1]

    def _token_of(self, call_sid: str) -> str | None:
        if not call_sid:
            # Calls that have no id yet are different calls.
            return None
        return next((each for each, (_, call) in self._waiting.items() if call.call_sid == call_sid), None)

    def _promised(self) -> int:
        """Return the number of calls that were answered and have no stream yet."""
        self._forget_the_late()
        return len(self._waiting)

    def _forget_the_late(self) -> None:
        now_s = self._clock_s()
        for token in [token for token, (until_s, _) in self._waiting.items() if until_s <= now_s]:
            del self._waiting[token]


def _name(call: PhoneCall) -> tuple[str, str]:
    return call.network, call.call_sid
