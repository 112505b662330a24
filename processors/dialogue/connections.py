"""Close the connections of a vendor's SDK client."""

import asyncio
from contextlib import suppress
from typing import Protocol

# Closing sends at most a farewell; a server that does not take it is abandoned.
CLOSE_S = 1.0


class PooledClient(Protocol):
    """Client of an SDK that holds connections."""

    async def close(self) -> None: ...


async def close_client(client: PooledClient) -> None:
    """Close a client's connections; repeated calls have no effect."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await client.close()
