"""How the client of a vendor's SDK gives its connections back."""

import asyncio
from contextlib import suppress
from typing import Protocol

# Closing sends at most a farewell; a server that does not take it is left.
CLOSE_S = 1.0


class Client(Protocol):
    """Of an SDK that holds connections."""

    async def close(self) -> None: ...


async def close_client(client: Client) -> None:
    """Close a client's connections; more than once is once."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await client.close()
