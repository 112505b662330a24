"""Count failed authentications by address, and delay their answers.

A valid credential is never refused because of wrong ones. Many clients share one address (a NAT, a proxy),
and an attacker there must not lock the others out. Instead the answer to a wrong credential is delayed,
longer with each one from its address, so that one connection makes few guesses. At most ``MOST_DELAYED``
answers are delayed at a time. A further wrong credential is refused at once, with 429 in place of its own
answer, so that a flood occupies no memory. A delayed answer occupies no line and no place.
"""

import asyncio

from fastapi import HTTPException

from parley.core.bounded_dict import BoundedDict

# Mistakes of people, and of programs that are being configured: this many have no delay.
FREE = 3
FIRST_S, LONGEST_S = 0.25, 5.0
# The count of an address is reset after a minute without a wrong credential.
FORGET_S = 60.0
MOST_DELAYED = 200


class AuthFailures:
    """Failed authentications of one process.

    Args:
        clients: number of addresses that are counted; the one not seen for longest is evicted.
        longest_s: longest delay of an answer.
    """

    def __init__(self, *, clients: int, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        # Wrong credentials in a row, and the loop time of the last one.
        self._counts: BoundedDict[str, tuple[int, float]] = BoundedDict(clients)
        self._delayed = 0

    async def refuse(self, client: str, error: HTTPException) -> HTTPException:
        """Count one wrong credential and wait.

        Args:
            client: address that it came from.
            error: answer to it.

        Returns:
            The error to raise: the given one, or a 429 where too many answers are delayed.
        """
        now_s = asyncio.get_running_loop().time()
        count, last_s = self._counts.get(client, (0, now_s))
        count = 1 if now_s - last_s >= FORGET_S else count + 1
        self._counts[client] = (count, now_s)
        delay_s = self._delay_s(count)
        if not delay_s:
            return error
        if self._delayed >= MOST_DELAYED:
            return HTTPException(
                429, "too many wrong credentials at this moment", {"Retry-After": str(round(self._longest_s))}
            )
        self._delayed += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._delayed -= 1
        return error

    def _delay_s(self, count: int) -> float:
        # The exponent is bounded: thousands would exceed a float.
        return 0.0 if count <= FREE else min(self._longest_s, FIRST_S * 2 ** min(count - FREE - 1, 10))
